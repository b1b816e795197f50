package writer

import (
	"context"
	"errors"
	"log/slog"
	"maps"

	"dibs/internal/sqlstore"
	"dibs/syncer/adder"
	"dibs/syncer/apply"
	"dibs/syncer/sums"
)

// addWaiting adds waiting sums of lots that are
// unlocked now, also the sums of dead processes.
func (w *Writer) addWaiting(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, apply.Timeout)
	defer cancel()
	left, err := sums.AddWaiting(ctx, w.cfg.DB, w.clock.Now())
	next := findWaiting
	switch {
	case err != nil && !errors.Is(err, context.Canceled) && !sqlstore.IsLockWait(err):
		w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn,
			"could not search sums that wait for locked campaigns", slog.Any("error", err))
	case err == nil:
		w.keepLocked(ctx, left)
	}
	if len(left) > 0 || len(w.lockedLots()) > 0 {
		next = retryLocked
	}
	w.waitAt = w.clock.Now().Add(next)
}

// setLocked records that a lot's sums wait, and reports whether that is new.
func (w *Writer) setLocked(lot adder.Lot) (isNew bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	isNew = !w.locked[lot]
	w.locked[lot] = true
	if isNew {
		w.waitAt = w.clock.Now().Add(retryLocked)
	}
	return isNew
}

func (w *Writer) keepLocked(ctx context.Context, left map[adder.Lot]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for lot := range w.locked {
		if !left[lot] {
			w.cfg.Logger.LogAttrs(ctx, slog.LevelInfo,
				"the counters of a campaign in MySQL are up to date again", slog.String("lot", lot.ID()))
		}
	}
	w.locked = left
	if left == nil {
		w.locked = make(map[adder.Lot]bool)
	}
}

func (w *Writer) lockedLots() map[adder.Lot]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.locked)
}
