package residency

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"dibs/lua"
	"dibs/models"
)

// appliedReleases is how many releases of a campaign Redis has applied in the load that MySQL knows: those that were decided, less
// those that wait in the outbox. One statement reads both, as of one moment.
const appliedReleases = "released_claims - (SELECT COUNT(*) FROM outbox" +
	" WHERE outbox.campaign_id = campaigns.id AND outbox.applied_at IS NULL" +
	" AND outbox.kind = '" + string(models.OutboxRelease) + "')"

// forgotReleases tells whether Redis went back to a time before a release that it had applied. Redis that lost claims shows it by
// their number, which a release leaves as it is. MySQL is read before Redis, which then has no fewer. "" is that nothing is wrong.
func (h *Hydrator) forgotReleases(ctx context.Context, c *models.Campaign, state *lua.State) (string, error) {
	if state.Released >= c.ReleasedClaims {
		return "", nil
	}
	applied, epoch, err := readApplied(h.db.WithContext(ctx), c.ID)
	if err != nil {
		return "", err
	}
	again, err := h.scripts.State(ctx, c.ID)
	switch {
	case errors.Is(err, lua.ErrAbsent) || err == nil && (epoch != c.Epoch || again.Epoch != epoch):
		return "", nil // it was evicted or loaded meanwhile: the next look tells
	case err != nil:
		return "", fmt.Errorf("residency: hydrate %s: %w", c.ID, err)
	case again.Released < applied:
		return fmt.Sprintf("redis went back: it knows %d releases, and was told of %d", again.Released, applied), nil
	}
	return "", nil
}

func readApplied(db *gorm.DB, id string) (applied, epoch int64, err error) {
	if err := db.Raw("SELECT "+appliedReleases+", epoch FROM campaigns WHERE id = ?", id).Row().Scan(&applied, &epoch); err != nil {
		return 0, 0, fmt.Errorf("residency: campaign %s: %w", id, err)
	}
	return applied, epoch, nil
}
