package apply

import (
	"fmt"
	"slices"

	"dibs/internal/sqlstore"
	"dibs/syncer/adder"
	"dibs/syncer/sums"
)

// moveLots writes stock_flushes, and updates
// the counters of lots that do not wait.
func (a *application) moveLots() error {
	a.Sums = a.b.Sums
	if len(a.written) < len(a.b.Rows) {
		a.Sums = sumOf(slices.Concat(a.written, a.moves))
	}
	lots := a.Sums.Lots()
	if len(lots) == 0 {
		return nil
	}
	if err := a.findLocked(lots); err != nil {
		return err
	}
	flushes, err := sums.Insert(a.ctx, a.tx, a.Sums, a.Waiting, a.clock.Since(a.started), a.clock.Now())
	if err != nil {
		return fmt.Errorf("stock_flushes: %w", err)
	}
	a.steps.At("flushes in")
	var ids []string
	for _, lot := range lots {
		if _, waits := a.Waiting[lot]; !waits {
			ids = append(ids, flushes[lot])
		}
	}
	err = sums.Add(a.ctx, a.tx, ids, a.clock.Now())
	if sqlstore.FailureOf(err) == sqlstore.FailureData {
		err = a.addEach(lots, flushes)
	}
	return err
}

// findLocked marks the lots whose sums wait: those known to be locked.
// In a careful flush it also marks all that are locked now.
func (a *application) findLocked(lots []adder.Lot) error {
	for _, lot := range lots {
		if a.b.Locked[lot] {
			a.Waiting[lot] = nil
		}
	}
	if !a.b.Careful {
		return nil
	}
	free, err := sums.LockFree(a.tx, lots)
	if err != nil {
		return err
	}
	for _, lot := range lots {
		if !free[lot] {
			a.Waiting[lot] = nil
		}
	}
	return nil
}

// addEach adds flushes lot by lot. Those that MySQL refuses wait.
func (a *application) addEach(lots []adder.Lot, flushes map[adder.Lot]string) error {
	for _, lot := range lots {
		if _, waits := a.Waiting[lot]; waits {
			continue
		}
		err := sums.Add(a.ctx, a.tx, []string{flushes[lot]}, a.clock.Now())
		if sqlstore.FailureOf(err) == sqlstore.FailureData {
			a.Waiting[lot] = err
			err = a.tx.Table("stock_flushes").Where("id = ?", flushes[lot]).Update("waiting", 1).Error
		}
		if err != nil {
			return err
		}
	}
	return nil
}
