package syncer

import (
	"context"
	"database/sql"
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
	applied, epoch, err := readApplied(h.db.WithContext(ctx), c.ID)
	if err != nil {
		return "", err
	}
	again, err := h.scripts.State(ctx, c.ID)
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

// countUntold counts the releases of a campaign that wait in outbox.
func countUntold(ctx context.Context, tx *sql.Tx, id string) (n int64, err error) {
	err = tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox WHERE campaign_id = ? AND applied_at IS NULL AND kind = ?", id,
		string(models.OutboxRelease)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("syncer: count outbox of %s: %w", id, err)
	}
	return n, nil
}

// releases tells releases that are on their way to Redis from those that never get there. Until both servers know the same
// ones there is no common watermark.
func (l *look) releases(ctx context.Context, state *lua.State) (settled bool, err error) {
	c := &l.snap.campaign
	if state.Released < c.ReleasedClaims-l.snap.untold { // MySQL was read first
		l.found.differInRedisf("redis knows %d releases, and was told of %d", state.Released, c.ReleasedClaims-l.snap.untold)
		return true, nil
	}
	if state.Released < c.ReleasedClaims {
		return false, nil
	}
	now, err := getCampaign(l.r.cfg.DB.WithContext(ctx), c.ID)
	if err != nil || now.Epoch != state.Epoch || now.ReleasedClaims >= state.Released {
		return false, err
	}
	l.found.differInRedisf("redis knows %d releases, mysql counts %d", state.Released, now.ReleasedClaims)
	return true, nil
}
