package writer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"dibs/internal/sqlstore"
	"dibs/internal/tracing"
	"dibs/models/event"
	"dibs/syncer/adder"
	"dibs/syncer/apply"
	"dibs/syncer/offset"
)

// flush applies entries. It returns when all
// are applied, by any process, or ctx ends.
func (w *Writer) flush(ctx context.Context, taken []adder.Taken) {
	started := w.clock.Now()
	w.startedAt = started
	b := apply.Gather(taken)
	w.lots = len(b.Sums)
	if b.HasLoad() {
		w.loadedAt = started
	}
	w.flushing.Store(&b.Since)
	span := w.trace(b)
	err := w.applyAll(ctx, b)
	span.Done(err)
	w.flushing.Store(nil)
	w.steps.At("written")
	w.metrics.flushSeconds.Observe(w.clock.Since(started).Seconds())
	w.metrics.batchClaims.Observe(float64(len(b.Rows)))
	if err != nil {
		w.metrics.dropped.Add(int64(len(b.Rows)))
	}
}

// applyAll applies a batch, except streams that another process has
// moved. Readers of these start again. It fails only when ctx ends.
func (w *Writer) applyAll(ctx context.Context, b *apply.Batch) error {
	for len(b.Streams) > 0 {
		b.Locked = w.lockedLots()
		var done *apply.Done
		err := sqlstore.RetryForever(ctx, w.noticeRetry, func() (err error) {
			done, err = w.store.Apply(ctx, b)
			if sqlstore.IsLockWait(err) {
				w.metrics.retries.WithLabelValues("clash").Inc()
				err = sqlstore.Final(err)
			}
			return err
		})
		var moved *offset.MovedError
		switch {
		case err == nil:
			w.report(ctx, done)
			w.announce(b.Streams)
			return nil
		case errors.As(err, &moved):
			b = w.without(b, moved)
		case sqlstore.IsLockWait(err):
			if b.Careful {
				w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn,
					"a flush waits for a lock of another transaction: see information_schema.innodb_trx", slog.Any("error", err))
			}
			b.Careful = true
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			w.cfg.Logger.LogAttrs(ctx, slog.LevelError, "MySQL refuses a flush, trying again", slog.Any("error", err))
			if err := w.pause(ctx, pauseRefused); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Writer) announce(streams []adder.Taken) {
	offsets := make(map[int]event.Offset, len(streams))
	for i := range streams {
		offsets[streams[i].Partition] = streams[i].Upto
	}
	w.cfg.Applied(offsets)
}

// without returns a batch without the moved
// streams, and ends turns of those moved by others.
func (w *Writer) without(b *apply.Batch, moved *offset.MovedError) *apply.Batch {
	var left []adder.Taken
	for _, s := range b.Streams {
		switch {
		case slices.Contains(moved.Applied, s.Partition):
		case slices.Contains(moved.Lost, s.Partition):
			w.adder.End(s.Partition, s.Turn)
			w.metrics.moved.Inc()
		default:
			left = append(left, s)
		}
	}
	next := apply.Gather(left)
	next.Careful = b.Careful
	return next
}

func (w *Writer) report(ctx context.Context, done *apply.Done) {
	var claims, units int64
	for _, sum := range done.Sums {
		claims += sum.Claims
		units += sum.Units
	}
	w.flushed.events.Add(int64(done.Events()))
	w.flushed.units.Add(units)
	w.metrics.claims.Add(float64(claims))
	w.metrics.units.Add(float64(units))
	w.metrics.replays.Add(float64(done.Known))
	if done.Dropped > 0 {
		w.metrics.unanswered.Add(float64(done.Dropped))
		w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "redis lost claims and sold their units again:"+
			" unanswered claims are dropped", slog.Int("claims", done.Dropped))
	}
	for _, p := range done.Parked {
		w.metrics.parked.WithLabelValues(p.Kind).Inc()
		w.cfg.Logger.LogAttrs(ctx, slog.LevelError,
			"event parked: its claim is not in MySQL until `dibs parked retry` writes it", slog.String("id", p.ID),
			slog.String("campaign_id", p.LotID), slog.String("kind", p.Kind), slog.String("reason", p.Reason))
	}
	for lot, err := range done.Waiting {
		if w.setLocked(lot) {
			w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the counters of a campaign in MySQL wait, its claims are written:"+
				" another transaction locks its row, see information_schema.innodb_trx, or MySQL refuses the change",
				slog.String("lot", lot.ID()), slog.Any("error", err))
		}
	}
}

func (w *Writer) trace(b *apply.Batch) *tracing.Span {
	if w.cfg.Tracer == nil {
		return nil
	}
	var spans []*tracing.Span
	for _, r := range b.Rows {
		if r.TraceParent != "" {
			spans = append(spans, tracing.Remote(r.TraceParent))
		}
	}
	return w.cfg.Tracer.Shared("flush", spans,
		attribute.Int("dibs.claims", len(b.Rows)), attribute.Int("dibs.campaigns", len(b.Sums)))
}

func (w *Writer) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-w.clock.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// WriteEvents applies events that are in no stream, as a flush does.
// Known rows stay as they are, and what MySQL refuses is parked.
func (w *Writer) WriteEvents(ctx context.Context, events ...event.Event) error {
	b, err := apply.Of(events...)
	if err != nil {
		return err
	}
	b.Locked = w.lockedLots()
	return sqlstore.Retry(ctx, func() error {
		done, err := w.store.Apply(ctx, b)
		if err != nil {
			return err
		}
		w.report(ctx, done)
		return nil
	})
}
