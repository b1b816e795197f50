package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// refillAgain is when a campaign is tried again that could not be refilled.
const refillAgain = time.Minute

// RestoreRows repairs campaigns that take no claims because MySQL was restored and that Redis still holds: each claim that Redis has a
// record
// of, or the claim stream an event, gets its row again. It gives nothing up: what a campaign lacks then, and campaigns that Redis does not
// hold, are for a person. It returns how many it restored. A failure is returned after the others had their turn. Refill is for one
// goroutine.
func (r *Reconciler) RestoreRows(ctx context.Context) (refilled int, err error) {
	left := make(map[string]time.Time)
	fetch := campaigns.Lots(ctx, r.db, sqlstore.PageSize, "id", "residency = ? AND residency_reason LIKE ?",
		models.ResidencyLost, campaigns.MySQLRolledBack+"%")
	err = sqlstore.EachRow(ctx, campaigns.ID, fetch, func(c *models.Campaign) error {
		if last, tried := r.left[c.ID]; tried && time.Since(last) < refillAgain {
			left[c.ID] = last
			return nil
		}
		done, err := r.refill(ctx, c.ID)
		if done {
			refilled++
		} else if err == nil {
			left[c.ID] = time.Now()
		}
		return err
	})
	r.left = left
	return refilled, err
}

// refill repairs one campaign. done is true when it takes claims again.
func (r *Reconciler) refill(ctx context.Context, id string) (done bool, err error) {
	_, err = r.scripts.State(ctx, id)
	if errors.Is(err, lua.ErrAbsent) || errors.Is(err, lua.ErrDamaged) {
		r.log.LogAttrs(ctx, slog.LevelError, "mysql was restored, and redis does not hold the campaign: claims that it got since may be lost;"+
			" roll the binary log forward, or take what mysql has by `dibs reconcile --repair --give-up-claims`", slog.String("campaign_id", id))
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reconcile: refill %s: %w", id, err)
	}
	repaired, err := r.Repair(ctx, id, RepairHow{})
	if err != nil {
		return false, err
	}
	found := &repaired.Found
	now := &repaired.Left
	brought := int64(0)
	if found.Rows != nil && now.Rows != nil {
		brought = now.Rows.Claims - found.Rows.Claims
	}
	if now.Agrees() {
		r.log.LogAttrs(ctx, slog.LevelWarn, "mysql was restored: the campaign has the rows again that redis knows of, and takes claims",
			slog.String("campaign_id", id), slog.Int64("claims_brought_back", brought))
		return true, nil
	}
	r.log.LogAttrs(ctx, slog.LevelError, "mysql was restored: the campaign takes no claims, because not all could be restored",
		slog.String("campaign_id", id), slog.Int64("claims_brought_back", brought), slog.String("left", strings.Join(now.Differences, "; ")))
	return false, nil
}
