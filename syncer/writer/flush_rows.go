package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"dibs/internal/migrations"
	"dibs/internal/sqlstore"
	"dibs/syncer/adder"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

const insertFlushesHead = "INSERT INTO stock_flushes (id, campaign_id, units, claims, first_seq, last_seq, took_ms, flushed_at," +
	" first_claimed_ms, shard, moved, waiting) VALUES "

// moveLots writes stock_flushes, and updates
// the counters of lots that do not wait.
func (a *application) moveLots() error {
	a.sums = a.b.sums
	if len(a.written) < len(a.b.rows) {
		a.sums = sumOf(slices.Concat(a.written, a.moves))
	}
	lots := sortedLots(a.sums)
	if len(lots) == 0 {
		return nil
	}
	if err := a.findLocked(lots); err != nil {
		return err
	}
	flushes, err := insertFlushes(a.ctx, a.tx, a.sums, a.waiting, a.clock.Since(a.started), a.clock.Now())
	if err != nil {
		return fmt.Errorf("stock_flushes: %w", err)
	}
	a.steps.At("flushes in")
	var ids []string
	for _, lot := range lots {
		if _, waits := a.waiting[lot]; !waits {
			ids = append(ids, flushes[lot])
		}
	}
	err = a.addToLots(ids)
	if sqlstore.FailureOf(err) == sqlstore.FailureData {
		err = a.addEach(lots, flushes)
	}
	return err
}

func sortedLots(sums map[adder.Lot]*adder.Tally) []adder.Lot {
	lots := make([]adder.Lot, 0, len(sums))
	for lot := range sums {
		lots = append(lots, lot)
	}
	slices.SortFunc(lots, compareLots)
	return lots
}

// findLocked marks the lots whose sums wait: those known to be locked.
// In a careful flush it also marks all that are locked now.
func (a *application) findLocked(lots []adder.Lot) error {
	a.mu.Lock()
	for _, lot := range lots {
		if a.locked[lot] {
			a.waiting[lot] = nil
		}
	}
	a.mu.Unlock()
	if !a.b.careful {
		return nil
	}
	free, err := lockFree(a.tx, lots)
	if err != nil {
		return err
	}
	for _, lot := range lots {
		if !free[lot] {
			a.waiting[lot] = nil
		}
	}
	return nil
}

// lockFree locks the lots that are not
// locked, and campaigns with their shards.
func lockFree(tx *gorm.DB, lots []adder.Lot) (free map[adder.Lot]bool, err error) {
	free = make(map[adder.Lot]bool, len(lots))
	var ids, unlocked []string
	for _, lot := range lots {
		ids = append(ids, lot.ID(), lot.CampaignID)
	}
	err = tx.Table("lots").Where("id IN ?", ids).Order("id").
		Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate, Options: clause.LockingOptionsSkipLocked}).
		Pluck("id", &unlocked).Error
	if err != nil {
		return nil, err
	}
	found := make(map[string]bool, len(unlocked))
	for _, id := range unlocked {
		found[id] = true
	}
	for _, lot := range lots {
		free[lot] = found[lot.ID()] && found[lot.CampaignID]
	}
	return free, nil
}

// addToLots adds flushes to lots and to
// campaigns of several shards in one statement.
func (a *application) addToLots(flushes []string) error {
	if len(flushes) == 0 {
		return nil
	}
	return addFlushes(a.ctx, a.tx, flushes, a.clock.Now())
}

// addEach adds flushes lot by lot. Those that MySQL refuses wait.
func (a *application) addEach(lots []adder.Lot, flushes map[adder.Lot]string) error {
	for _, lot := range lots {
		if _, waits := a.waiting[lot]; waits {
			continue
		}
		err := a.addToLots([]string{flushes[lot]})
		if sqlstore.FailureOf(err) == sqlstore.FailureData {
			a.waiting[lot] = err
			err = a.tx.Table("stock_flushes").Where("id = ?", flushes[lot]).Update("waiting", 1).Error
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// The sums lead the join and lots are found by key, so that only these
// are locked. A scan of a small table would lock all of it.
const (
	flushSums = "SELECT campaign_id, shard, SUM(units) AS units, SUM(claims) AS claims, SUM(moved) AS moved" +
		" FROM stock_flushes WHERE id IN %[1]s GROUP BY campaign_id, shard UNION ALL" +
		" SELECT campaign_id, 0, SUM(units), SUM(claims), 0 FROM stock_flushes WHERE shard > 0 AND id IN %[1]s GROUP BY campaign_id"
	addFlushesMySQL = "UPDATE (" + flushSums + ") f STRAIGHT_JOIN lots FORCE INDEX (PRIMARY)" +
		" ON lots.campaign_id = f.campaign_id AND lots.shard = f.shard SET lots.claimed = lots.claimed + f.units," +
		" lots.sold = lots.sold + f.units, lots.synced_seq = lots.synced_seq + f.claims," +
		" lots.total = lots.total + f.moved, lots.updated_at = ?"
	addFlushesSQLite = "UPDATE lots SET claimed = claimed + f.units, sold = sold + f.units," +
		" synced_seq = synced_seq + f.claims, total = total + f.moved, updated_at = ?" +
		" FROM (" + flushSums + ") AS f WHERE lots.campaign_id = f.campaign_id AND lots.shard = f.shard"
)

func addFlushes(ctx context.Context, tx *gorm.DB, ids []string, now time.Time) error {
	list := "('" + strings.Join(ids, "','") + "')" // UUIDs need no escaping
	query := fmt.Sprintf(addFlushesMySQL, list)
	if tx.Name() == migrations.SQLite {
		query = fmt.Sprintf(addFlushesSQLite, list)
	}
	_, err := sqlstore.Exec(ctx, tx, query, now.UTC().Format(sqlstore.TimeLayout))
	return err
}

// insertFlushes inserts one row per lot
// into stock_flushes, and returns the ids.
func insertFlushes(
	ctx context.Context, tx *gorm.DB, sums map[adder.Lot]*adder.Tally, waiting map[adder.Lot]error,
	took time.Duration, now time.Time,
) (ids map[adder.Lot]string, err error) {
	s := sqlstore.NewStatement(insertFlushesHead, len(sums)*sqlstore.RowBytes)
	ids = make(map[adder.Lot]string, len(sums))
	for _, lot := range sortedLots(sums) {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		sum := sums[lot]
		s.BeginRow(len(ids))
		ids[lot] = id.String()
		s.Text(id.String())
		s.Text(lot.CampaignID)
		s.Int(sum.Units)
		s.Int(sum.Claims)
		s.Int(sum.FirstSeq)
		s.Int(sum.LastSeq)
		s.Int(took.Milliseconds())
		s.Time(now)
		s.Int(sum.FirstMs)
		s.Int(int64(lot.Shard))
		s.Int(sum.Moved)
		s.IntOrNull(waitingMark(waiting, lot))
		s.EndRow()
	}
	if len(ids) == 0 {
		return ids, nil
	}
	_, err = sqlstore.Exec(ctx, tx, s.SQL(), s.Args...)
	return ids, err
}

func waitingMark(waiting map[adder.Lot]error, lot adder.Lot) *int64 {
	if _, waits := waiting[lot]; !waits {
		return nil
	}
	return new(int64(1))
}

// addWaiting adds waiting sums of lots that are
// unlocked now, also the sums of dead processes.
func (w *Writer) addWaiting(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.flushTimeout)
	defer cancel()
	left, err := w.tryWaiting(ctx)
	next := findWaiting
	switch {
	case err != nil && !errors.Is(err, context.Canceled) && !sqlstore.IsLockWait(err):
		w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn,
			"could not search sums that wait for locked campaigns", slog.Any("error", err))
	case err == nil:
		w.keepLocked(ctx, left)
	}
	if len(left) > 0 || w.lockedLots() > 0 {
		next = retryLocked
	}
	w.waitAt = w.clock.Now().Add(next)
}

func (w *Writer) tryWaiting(ctx context.Context) (left map[adder.Lot]bool, err error) {
	lots, err := w.waitingLots(ctx)
	if err != nil || len(lots) == 0 {
		return nil, err
	}
	err = sqlstore.InTxBrief(ctx, w.db, func(tx *gorm.DB) error {
		left = make(map[adder.Lot]bool)
		free, err := lockFree(tx, lots)
		if err != nil {
			return err
		}
		for _, lot := range lots {
			if free[lot] {
				err = w.addWaitingOf(ctx, tx, lot)
			}
			if !free[lot] || sqlstore.FailureOf(err) == sqlstore.FailureData {
				left[lot] = true
				err = nil
			}
			if err != nil {
				return err
			}
		}
		return err
	})
	return left, err
}

func (w *Writer) waitingLots(ctx context.Context) (lots []adder.Lot, err error) {
	err = w.db.WithContext(ctx).Table("stock_flushes").Where("waiting = 1").Distinct("campaign_id", "shard").Scan(&lots).Error
	slices.SortFunc(lots, compareLots)
	return lots, err
}

// addWaitingOf adds the sums of a lot. Its
// row is locked, so no other process does.
func (w *Writer) addWaitingOf(ctx context.Context, tx *gorm.DB, lot adder.Lot) error {
	var ids []string
	waiting := tx.Table("stock_flushes").Where("waiting = 1 AND campaign_id = ? AND shard = ?", lot.CampaignID, lot.Shard)
	if err := waiting.Pluck("id", &ids).Error; err != nil || len(ids) == 0 {
		return err
	}
	if err := addFlushes(ctx, tx, ids, w.clock.Now()); err != nil {
		return err
	}
	return tx.Table("stock_flushes").Where("id IN ?", ids).Update("waiting", nil).Error
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

func (w *Writer) lockedLots() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.locked)
}

func compareLots(a, b adder.Lot) int {
	return cmp.Or(cmp.Compare(a.CampaignID, b.CampaignID), cmp.Compare(a.Shard, b.Shard))
}
