package writer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"dibs/internal/sqlstore"
)

const (
	// searchesMax bounds the searches in a row that find no reason why a batch clashes; then it is bisected. A server whose
	// reads come from a replica may take a while to show the claim that was in the way.
	searchesMax = 8
	// searchPause is the wait before the second such search; it doubles each time.
	searchPause = 10 * time.Millisecond
)

// flush writes the cells and answers the callers that wait for them.
func (w *Writer) flush(ctx context.Context, cells []*cell) {
	begun := w.clock.Now()
	b := gather(cells)
	w.flushing.Store(&b.since)
	err := w.writeRows(ctx, b.rows, b.sums)
	w.flushing.Store(nil)
	w.steps.At("written")
	w.metrics.flushSeconds.Observe(w.clock.Since(begun).Seconds())
	w.metrics.batchClaims.Observe(float64(len(b.rows)))
	var held int64
	for _, c := range cells {
		held += int64(len(c.rows))
		w.adder.release(c, err)
	}
	if err != nil {
		w.metrics.dropped.Add(held)
	}
	w.steps.At("released")
	w.room.Release(held)
}

// writeRows writes to MySQL the rows that can be written, and parks the others. It fails only when ctx ends: with ErrClosed
// when that is why.
func (w *Writer) writeRows(ctx context.Context, rows []*row, sums map[string]*tally) error {
	for searches := 0; len(rows) > 0; {
		err := sqlstore.RetryForever(ctx, w.noticeRetry, func() error { return w.commit(ctx, rows, sums) })
		if err == nil {
			w.count(rows, sums)
			return nil
		}
		f := sqlstore.FailureOf(err)
		inConflict := f == sqlstore.FailureDuplicate || isConflict(err)
		if !inConflict && (f == sqlstore.FailureTransient || f == sqlstore.FailureClash) {
			return err // ctx has ended
		}
		if !inConflict || searches == searchesMax {
			return w.bisect(ctx, rows, err)
		}
		left, err := w.resolveConflicts(ctx, rows)
		if err != nil {
			return err
		}
		if len(left) < len(rows) {
			rows, sums, searches = left, sumOf(left), 0
			continue
		}
		if err := w.pause(ctx, searchPause<<searches); err != nil {
			return err
		}
		searches++
	}
	return nil
}

func (w *Writer) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-w.clock.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// bisect writes the halves of a batch that the database refuses. A row that is refused alone is parked.
func (w *Writer) bisect(ctx context.Context, rows []*row, cause error) error {
	if len(rows) == 1 {
		return w.park(ctx, rows[0], parkedData, cause.Error())
	}
	for _, half := range [][]*row{rows[:len(rows)/2], rows[len(rows)/2:]} {
		if err := w.writeRows(ctx, half, sumOf(half)); err != nil {
			return err
		}
	}
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

// noticeRetry counts every retry, and logs it unless it is after a clash, which ends by itself.
func (w *Writer) noticeRetry(err error, f sqlstore.Failure, wait time.Duration) {
	if f == sqlstore.FailureClash {
		w.metrics.retries.WithLabelValues("clash").Inc()
		return
	}
	w.metrics.retries.WithLabelValues("trouble").Inc()
	if errors.Is(err, context.Canceled) {
		return
	}
	w.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "writing claims to MySQL failed, trying again",
		slog.Duration("after", wait), slog.Any("error", err))
}
