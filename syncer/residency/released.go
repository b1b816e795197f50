package residency

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"dibs/lua"
	"dibs/models"
)

// appliedReleases is how many releases of a campaign Redis was told of under the load that MySQL knows: those that were
// decided, less those that wait in outbox. One statement reads both, as of one moment.
const appliedReleases = "released_claims - (SELECT COUNT(*) FROM outbox" +
	" WHERE outbox.campaign_id = campaigns.id AND outbox.applied_at IS NULL" +
	" AND outbox.kind = '" + string(models.OutboxRelease) + "')"

// forgotReleases tells whether Redis went back to a time before a release that it was told of. Claims since then would show
// by their number; a release alone leaves that as it was. MySQL is read before Redis, which then knows no less. "" is that
// nothing is wrong.
func (h *Hydrator) forgotReleases(ctx context.Context, c *models.Campaign, state *lua.State) (string, error) {
	if state.Released >= c.ReleasedClaims {
		return "", nil
	}
	applied, epoch, err := readApplied(h.Db.WithContext(ctx), c.ID)
	if err != nil {
		return "", err
	}
	again, err := h.Scripts.State(ctx, c.ID)
	switch {
	case errors.Is(err, lua.ErrAbsent) || err == nil && (epoch != c.Epoch || again.Epoch != epoch):
		return "", nil // it left or came back meanwhile: the next look tells
	case err != nil:
		return "", fmt.Errorf("syncer: hydrate %s: %w", c.ID, err)
	case again.Released < applied:
		return fmt.Sprintf("redis went back: it knows %d releases, and was told of %d", again.Released, applied), nil
	}
	return "", nil
}

func readApplied(db *gorm.DB, id string) (applied, epoch int64, err error) {
	if err := db.Raw("SELECT "+appliedReleases+", epoch FROM campaigns WHERE id = ?", id).Row().Scan(&applied, &epoch); err != nil {
		return 0, 0, fmt.Errorf("syncer: campaign %s: %w", id, err)
	}
	return applied, epoch, nil
}
