package writer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"dibs/internal/sqlstore"
	"dibs/internal/tracing"
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
	started := w.clock.Now()
	b := gather(cells)
	w.lots = len(b.sums)
	w.flushing.Store(&b.since)
	locked := make(map[string][]*row)
	rows := w.locked.holdBack(b.rows, locked)
	sums := b.sums
	if len(rows) < len(b.rows) {
		sums = sumOf(rows)
	}
	span := w.trace(rows, sums)
	err := w.writeRows(ctx, &attempt{locked: locked}, rows, sums)
	span.Done(err)
	var held int64 // less those that wait on
	if err == nil {
		held = -w.queueLocked(ctx, b, cells, locked)
	}
	w.flushing.Store(nil)
	w.steps.At("written")
	w.metrics.flushSeconds.Observe(w.clock.Since(started).Seconds())
	w.metrics.batchClaims.Observe(float64(len(b.rows)))
	for _, c := range cells {
		held += int64(len(c.rows))
		w.adder.release(c, err)
	}
	if err != nil {
		w.metrics.dropped.Add(held)
	}
	w.steps.At("released")
	w.capacity.Release(held)
}

// trace starts the span of a flush, if some of its rows are traced.
func (w *Writer) trace(rows []*row, sums map[string]*tally) *tracing.Span {
	if w.cfg.Tracer == nil {
		return nil
	}
	var spans []*tracing.Span
	for _, r := range rows {
		if r.trace != "" {
			spans = append(spans, tracing.Remote(r.trace))
		}
	}
	return w.cfg.Tracer.Shared("flush", spans, attribute.Int("dibs.claims", len(rows)), attribute.Int("dibs.campaigns", len(sums)))
}

// attempt says how rows are written.
type attempt struct {
	brief  bool              // the rows are of one campaign, and wait only a second for each lock
	locked map[string][]*row // takes the rows that met a lock, by campaign
}

// writeRows writes to MySQL the rows that can be written, and parks the others. Those that met a lock of another transaction are
// in how.locked then. It fails only when ctx ends: with ErrClosed when that is why.
func (w *Writer) writeRows(ctx context.Context, how *attempt, rows []*row, sums map[string]*tally) error {
	for searches := 0; len(rows) > 0; {
		err := sqlstore.RetryForever(ctx, w.noticeRetry, func() error { return w.tryCommit(ctx, how.brief, rows, sums) })
		switch {
		case err == nil:
			w.count(rows, sums)
			return nil
		case sqlstore.IsLockWait(err) && how.brief:
			id := rows[0].event.LotID()
			how.locked[id] = append(how.locked[id], rows...)
			return nil
		case sqlstore.IsLockWait(err):
			return w.writeByCampaign(ctx, rows, how.locked)
		}
		f := sqlstore.FailureOf(err)
		inConflict := f == sqlstore.FailureDuplicate || isConflict(err)
		if !inConflict && (f == sqlstore.FailureTransient || f == sqlstore.FailureClash) {
			return err // ctx has ended
		}
		if !inConflict || searches == searchesMax {
			return w.bisect(ctx, how, rows, err)
		}
		left, err := w.resolveConflicts(ctx, rows)
		if err != nil {
			return err
		}
		if len(left) < len(rows) {
			rows = left
			sums = sumOf(left)
			searches = 0
			continue
		}
		if err := w.pause(ctx, searchPause<<searches); err != nil {
			return err
		}
		searches++
	}
	return nil
}

// tryCommit makes a lock wait that timed out a final error, which is not retried here.
func (w *Writer) tryCommit(ctx context.Context, brief bool, rows []*row, sums map[string]*tally) error {
	err := w.commit(ctx, brief, rows, sums)
	if sqlstore.IsLockWait(err) {
		w.metrics.retries.WithLabelValues("clash").Inc()
		return sqlstore.Final(err)
	}
	return err
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
func (w *Writer) bisect(ctx context.Context, how *attempt, rows []*row, cause error) error {
	if len(rows) == 1 {
		return w.park(ctx, rows[0], parkedData, cause.Error())
	}
	for _, half := range [][]*row{rows[:len(rows)/2], rows[len(rows)/2:]} {
		if err := w.writeRows(ctx, how, half, sumOf(half)); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) count(rows []*row, sums map[string]*tally) {
	var claims, units int64
	for _, sum := range sums {
		claims += sum.claims
		units += sum.units
	}
	w.flushed.events.Add(int64(len(rows)))
	w.flushed.units.Add(units)
	w.metrics.claims.Add(float64(claims))
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
