package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"dibs/lua"
)

// Restore repairs a lot that takes no claims because MySQL was rolled back and that Redis still holds: each claim that Redis has a record
// of, or the claim stream an event, gets its row again. It gives nothing up: what is still missing then, and lots that Redis does not
// hold, are left to an operator. restored is true when the lot takes claims again.
func (r *Reconciler) Restore(ctx context.Context, id string) (restored bool, err error) {
	_, err = r.scripts.State(ctx, id)
	if errors.Is(err, lua.ErrAbsent) || errors.Is(err, lua.ErrDamaged) {
		r.log.LogAttrs(ctx, slog.LevelError, "mysql was restored, and redis does not hold the campaign: claims that it got since may be lost;"+
			" roll the binary log forward, or take what mysql has by `dibs reconcile --repair --give-up-claims`", slog.String("campaign_id", id))
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reconcile: restore %s: %w", id, err)
	}
	repaired, err := r.Repair(ctx, id, RepairHow{})
	if err != nil {
		return false, err
	}
	before := repaired.Found.Rows
	now := &repaired.Left
	inserted := int64(0)
	if before != nil && now.Rows != nil {
		inserted = now.Rows.Claims - before.Claims
	}
	attrs := []slog.Attr{slog.String("campaign_id", id), slog.Int64("claims_brought_back", inserted)}
	if now.Agrees() {
		r.log.LogAttrs(ctx, slog.LevelWarn, "mysql was restored: the campaign has the rows again that redis knows of, and takes claims", attrs...)
		return true, nil
	}
	r.log.LogAttrs(ctx, slog.LevelError, "mysql was restored: the campaign takes no claims, because not all could be restored",
		append(attrs, slog.String("left", strings.Join(now.Differences, "; ")))...)
	return false, nil
}
