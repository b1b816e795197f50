package writer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"dibs/internal/sqlstore"
	"dibs/internal/tracing"
	"dibs/models"
	"dibs/syncer/adder"
	"dibs/syncer/offset"
)

type batch struct {
	streams []adder.Taken
	rows    []*models.RawEvent         // in the order of the primary key
	sums    map[adder.Lot]*adder.Tally // of all rows
	lots    []*models.RawEvent         // loads, evictions and the like, in the order of the stream
	events  []*models.RawEvent         // events from the outbox
	since   time.Time                  // arrival of the oldest entry
	careful bool                       // skip locked lots instead of waiting for them
	whole   bool                       // write all or nothing
}

func gather(streams []adder.Taken) *batch {
	b := &batch{streams: streams, sums: make(map[adder.Lot]*adder.Tally)}
	for i := range streams {
		s := &streams[i]
		if b.since.IsZero() || s.Since.Before(b.since) {
			b.since = s.Since
		}
		for _, read := range s.Reads {
			for j := range read.Events {
				switch e := &read.Events[j]; {
				case e.Unreadable != "" || adder.HasRow(&e.Event):
					b.rows = append(b.rows, e)
				case e.IsOfLot():
					b.lots = append(b.lots, e)
				case e.Type != models.EventPartitionGeneration:
					b.events = append(b.events, e)
				}
			}
		}
		for lot, sum := range s.Sums {
			if b.sums[lot] == nil {
				b.sums[lot] = &adder.Tally{}
			}
			b.sums[lot].Merge(sum)
		}
	}
	slices.SortFunc(b.rows, byID)
	return b
}

func byID(a, b *models.RawEvent) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.CampaignID, b.CampaignID))
}

func sumOf(rows []*models.RawEvent) map[adder.Lot]*adder.Tally {
	sums := make(map[adder.Lot]*adder.Tally)
	for _, r := range rows {
		lot := adder.LotOf(&r.Event)
		if sums[lot] == nil {
			sums[lot] = &adder.Tally{}
		}
		sums[lot].Add(&r.Event)
	}
	return sums
}

// flush applies entries. It returns when all
// are applied, by any process, or ctx ends.
func (w *Writer) flush(ctx context.Context, taken []adder.Taken) {
	started := w.clock.Now()
	w.startedAt = started
	b := gather(taken)
	w.lots = len(b.sums)
	if slices.ContainsFunc(b.lots, func(e *models.RawEvent) bool { return e.Type == models.EventLotLoaded }) {
		w.loadedAt = started
	}
	w.flushing.Store(&b.since)
	span := w.trace(b)
	err := w.applyAll(ctx, b)
	span.Done(err)
	w.flushing.Store(nil)
	w.steps.At("written")
	w.metrics.flushSeconds.Observe(w.clock.Since(started).Seconds())
	w.metrics.batchClaims.Observe(float64(len(b.rows)))
	if err != nil {
		w.metrics.dropped.Add(int64(len(b.rows)))
	}
}

// applyAll applies a batch, except streams that another process has
// moved. Readers of these start again. It fails only when ctx ends.
func (w *Writer) applyAll(ctx context.Context, b *batch) error {
	for len(b.streams) > 0 {
		var done *applied
		err := sqlstore.RetryForever(ctx, w.noticeRetry, func() (err error) {
			done, err = w.apply(ctx, b)
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
			w.announce(b.streams)
			return nil
		case errors.As(err, &moved):
			b = w.without(b, moved)
		case sqlstore.IsLockWait(err):
			if b.careful {
				w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn,
					"a flush waits for a lock of another transaction: see information_schema.innodb_trx", slog.Any("error", err))
			}
			b.careful = true
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
	offsets := make(map[int]models.Offset, len(streams))
	for i := range streams {
		offsets[streams[i].Partition] = streams[i].Upto
	}
	w.cfg.Applied(offsets)
}

// without returns a batch without the moved
// streams, and ends turns of those moved by others.
func (w *Writer) without(b *batch, moved *offset.MovedError) *batch {
	var left []adder.Taken
	for _, s := range b.streams {
		switch {
		case slices.Contains(moved.Applied, s.Partition):
		case slices.Contains(moved.Lost, s.Partition):
			w.adder.End(s.Partition, s.Turn)
			w.metrics.moved.Inc()
		default:
			left = append(left, s)
		}
	}
	next := gather(left)
	next.careful = b.careful
	return next
}

func (w *Writer) report(ctx context.Context, done *applied) {
	var claims, units int64
	for _, sum := range done.sums {
		claims += sum.Claims
		units += sum.Units
	}
	w.flushed.events.Add(int64(len(done.written) + len(done.moves)))
	w.flushed.units.Add(units)
	w.metrics.claims.Add(float64(claims))
	w.metrics.units.Add(float64(units))
	w.metrics.replays.Add(float64(done.known))
	if done.dropped > 0 {
		w.metrics.unanswered.Add(float64(done.dropped))
		w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "redis lost claims and sold their units again:"+
			" unanswered claims are dropped", slog.Int("claims", done.dropped))
	}
	for _, p := range done.parked {
		w.metrics.parked.WithLabelValues(p.kind).Inc()
		w.cfg.Logger.LogAttrs(ctx, slog.LevelError,
			"event parked: its claim is not in MySQL until `dibs parked retry` writes it", slog.String("id", p.ID),
			slog.String("campaign_id", p.LotID), slog.String("kind", p.kind), slog.String("reason", p.Reason))
	}
	for lot, err := range done.waiting {
		if w.setLocked(lot) {
			w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the counters of a campaign in MySQL wait, its claims are written:"+
				" another transaction locks its row, see information_schema.innodb_trx, or MySQL refuses the change",
				slog.String("lot", lot.ID()), slog.Any("error", err))
		}
	}
}

func (w *Writer) trace(b *batch) *tracing.Span {
	if w.cfg.Tracer == nil {
		return nil
	}
	var spans []*tracing.Span
	for _, r := range b.rows {
		if r.TraceParent != "" {
			spans = append(spans, tracing.Remote(r.TraceParent))
		}
	}
	return w.cfg.Tracer.Shared("flush", spans,
		attribute.Int("dibs.claims", len(b.rows)), attribute.Int("dibs.campaigns", len(b.sums)))
}

func (w *Writer) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-w.clock.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
