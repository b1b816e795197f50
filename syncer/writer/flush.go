package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
)

const (
	// siftsMax bounds how often in a row a batch that clashes is searched without finding why, before it is bisected. A
	// server that answers reads from a replica may take a while to show the claim that was in the way.
	siftsMax = 8
	// siftPause is the wait before the second such search; it doubles each time.
	siftPause = 10 * time.Millisecond
)

// batch is what one flush writes: rows sorted by id, no id twice, and what they add up to.
type batch struct {
	rows  []*row
	sums  map[string]*tally
	since time.Time // when the oldest claim came
}

// gather makes a batch of cells. When a claim is in there twice the sums of the cells say too much, and are made anew.
func gather(cells []*cell) *batch {
	b := &batch{sums: make(map[string]*tally)}
	for _, c := range cells {
		b.since = earlier(b.since, c.since)
		for i := range c.rows {
			b.rows = append(b.rows, &c.rows[i])
		}
		for id, sum := range c.sums {
			total := b.sums[id]
			if total == nil {
				total = &tally{}
				b.sums[id] = total
			}
			total.merge(*sum)
		}
	}
	submitted := len(b.rows)
	slices.SortFunc(b.rows, byID)
	b.rows = slices.CompactFunc(b.rows, sameClaim)
	if len(b.rows) < submitted {
		b.sums = sumOf(b.rows)
	}
	return b
}

// byID sorts by id, which is the order of the primary key; claims that say the same end up side by side.
func byID(a, b *row) int {
	if c := cmp.Compare(a.event.ID, b.event.ID); c != 0 {
		return c
	}
	x, y := &a.event, &b.event
	return cmp.Or(cmp.Compare(x.Seq, y.Seq), cmp.Compare(x.Quantity, y.Quantity),
		cmp.Compare(x.CampaignID, y.CampaignID), cmp.Compare(x.UserID, y.UserID))
}

// sameClaim tells whether two rows say the same. Two claims that share an id and differ are left for sift to judge.
func sameClaim(a, b *row) bool {
	x, y := &a.event, &b.event
	return x.ID == y.ID && x.CampaignID == y.CampaignID && x.Seq == y.Seq && x.UserID == y.UserID && x.Quantity == y.Quantity
}

func sumOf(rows []*row) map[string]*tally {
	sums := make(map[string]*tally)
	for _, r := range rows {
		sum := sums[r.event.CampaignID]
		if sum == nil {
			sum = &tally{}
			sums[r.event.CampaignID] = sum
		}
		sum.add(&r.event)
	}
	return sums
}

// flush writes the cells and answers those who wait for them.
func (w *Writer) flush(ctx context.Context, cells []*cell) {
	begun := w.cfg.Clock.Now()
	b := gather(cells)
	w.flights.begin(b)
	err := w.write(ctx, b.rows, b.sums)
	w.flights.end(b)
	w.step("written")
	w.metrics.flushSeconds.Observe(w.cfg.Clock.Since(begun).Seconds())
	w.metrics.batchClaims.Observe(float64(len(b.rows)))
	var held int64
	for _, c := range cells {
		held += int64(len(c.rows))
		w.adder.release(c, err)
	}
	if err != nil {
		w.metrics.dropped.Add(held)
	}
	w.step("released")
	w.room.Release(held)
}

// write brings the rows into MySQL: those that can be, the others into parked_events. It fails only when ctx ends, with
// ErrWriterClosed when that is why.
func (w *Writer) write(ctx context.Context, rows []*row, sums map[string]*tally) error {
	for vain := 0; len(rows) > 0; {
		err := sqlstore.RetryForever(ctx, w.noticeRetry, func() error { return w.commit(ctx, rows, sums) })
		f := sqlstore.FailureOf(err)
		inConflict := f == sqlstore.FailureDuplicate || isConflict(err)
		if inConflict && vain < siftsMax {
			kept, siftErr := w.resolveConflicts(ctx, rows)
			if siftErr != nil {
				return siftErr
			}
			if len(kept) < len(rows) {
				rows, sums, vain = kept, sumOf(kept), 0
				continue
			}
			if err := w.pause(ctx, siftPause<<vain); err != nil {
				return err
			}
			vain++
			continue
		}
		switch {
		case err == nil:
			return nil
		case !inConflict && (f == sqlstore.FailureTransient || f == sqlstore.FailureClash):
			return err // ctx is over
		default:
			return w.bisect(ctx, rows, err)
		}
	}
	return nil
}

func (w *Writer) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-w.cfg.Clock.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// bisect writes the halves of a batch that the database refuses, down to the row that it refuses alone: that is parked.
func (w *Writer) bisect(ctx context.Context, rows []*row, cause error) error {
	if len(rows) == 1 {
		return w.park(ctx, rows[0], parkedData, cause.Error())
	}
	for _, half := range [][]*row{rows[:len(rows)/2], rows[len(rows)/2:]} {
		if err := w.write(ctx, half, sumOf(half)); err != nil {
			return err
		}
	}
	return nil
}

// commit writes rows and books in one transaction: all of them or nothing. After an error of unknown outcome it may be
// called again: what went in then is a duplicate.
func (w *Writer) commit(ctx context.Context, rows []*row, sums map[string]*tally) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.FlushTimeout)
	defer cancel()
	begun := w.cfg.Clock.Now()
	w.step("begin")
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("syncer: flush: begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing left to undo
	w.step("begun")
	if err := insertClaims(ctx, tx, w.dialect, rows, begun); err != nil {
		return fmt.Errorf("syncer: flush: claims: %w", err)
	}
	w.step("claims in")
	if err := setOwners(ctx, tx, w.dialect, rows); err != nil {
		return fmt.Errorf("syncer: flush: packets: %w", err)
	}
	ids, err := insertFlushes(ctx, tx, sums, w.cfg.Clock.Since(begun), w.cfg.Clock.Now())
	if err != nil {
		return fmt.Errorf("syncer: flush: stock_flushes: %w", err)
	}
	w.step("flushes in")
	// Last, so that the hot row of a campaign is locked for one statement and the commit.
	if err := moveBooks(ctx, tx, w.dialect, ids, w.cfg.Clock.Now()); err != nil {
		return fmt.Errorf("syncer: flush: campaigns: %w", err)
	}
	w.step("books moved")
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("syncer: flush: commit: %w", err)
	}
	w.step("committed")
	w.count(rows, sums)
	return nil
}

func (w *Writer) count(rows []*row, sums map[string]*tally) {
	var units int64
	for _, sum := range sums {
		units += sum.units
	}
	w.flushed.events.Add(int64(len(rows)))
	w.flushed.units.Add(units)
	w.metrics.claims.Add(float64(len(rows)))
	w.metrics.units.Add(float64(units))
}

// noticeRetry counts every repetition and logs those that are not a lost race, which heals by itself.
func (w *Writer) noticeRetry(err error, f sqlstore.Failure, wait time.Duration) {
	if f == sqlstore.FailureClash {
		w.metrics.retries.WithLabelValues("clash").Inc()
		return
	}
	w.metrics.retries.WithLabelValues("trouble").Inc()
	if errors.Is(err, context.Canceled) {
		return
	}
	w.log.LogAttrs(context.Background(), slog.LevelWarn, "flush failed, trying again",
		slog.Duration("after", wait), slog.Any("error", err))
}

var _ interface {
	Submit(ctx context.Context, e models.Event, payload []byte) error
} = (*Writer)(nil)

// errUnknownCampaign says that a batch holds claims of a campaign that MySQL does not know.
var errUnknownCampaign = errors.New("syncer: no such campaign")

// isConflict tells whether rows of a batch contradict what MySQL holds: the same batch again would fail again.
func isConflict(err error) bool {
	return errors.Is(err, errUnknownCampaign) || errors.Is(err, errPacketTaken)
}
