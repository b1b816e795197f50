package writer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"dibs/models"
)

// ErrClosed says that the writer closed before the event was committed: deliver it again.
var ErrClosed = errors.New("writer: closed before the event was committed")

// Writer writes claim events to MySQL, many in one transaction. Any number of goroutines may submit at once. The same events may
// be given to any number of writers in any number of processes: each claim counts once.
type Writer struct {
	store

	cfg      Config
	metrics  *metrics
	adder    *adder
	capacity *semaphore.Weighted // tuning.pendingMax, less the claims in memory
	wake     chan struct{}       // has a token when the first claim is pending, and when enough for a flush are

	closing   chan struct{}
	closeOnce sync.Once
	stopped   chan struct{} // closed when nothing runs any more
	running   sync.WaitGroup
	abort     context.CancelCauseFunc

	lots     int // campaigns and shards in the last flush; only run uses it
	locked   lockedQueue
	flushing atomic.Pointer[time.Time]            // when the oldest claim of the flush under way came; nil: none is under way
	flushed  struct{ events, units atomic.Int64 } // since the start
}

// New checks cfg and starts a writer; Close stops it. Errors: sqlstore.ErrConfig.
func New(cfg Config) (*Writer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := unstarted(cfg, cfg.tuning())
	w.start()
	return w, nil
}

func unstarted(cfg Config, t tuning) *Writer {
	w := &Writer{
		store: store{db: cfg.DB, witness: cfg.FlushLog, tuning: t}, cfg: cfg,
		adder: newAdder(cfg.FlushSize), capacity: semaphore.NewWeighted(int64(t.pendingMax)), wake: make(chan struct{}, 1),
		closing: make(chan struct{}), stopped: make(chan struct{}),
	}
	w.metrics = newMetrics(cfg.Registerer, w.oldestAge, w.lockedCampaigns)
	return w
}

func (w *Writer) start() {
	ctx, abort := context.WithCancelCause(context.Background())
	w.abort = abort
	go w.run(ctx)
}

// Submit writes the claims among events, and the debits and credits of lots. Before it returns it calls settled once for each event, by its
// place: with nil once the event is committed, or parked because it can never be, and at once for other events. After any error the event
// is not known to be committed: deliver it again. Submit blocks for the flushes that hold the events, and before that while too many claims
// are in memory. The writer retains payloads, which must not be changed afterwards. Errors: ErrClosed, or why ctx ended.
func (w *Writer) Submit(ctx context.Context, events []models.RawEvent, settled func(i int, err error)) {
	claims := make([]int, 0, len(events))
	for i := range events {
		if events[i].Type == models.EventClaimAccepted || events[i].IsTransfer() {
			claims = append(claims, i)
		} else {
			settled(i, nil)
		}
	}
	var parts []part
	for some := range slices.Chunk(claims, w.pendingMax) {
		added, err := w.add(ctx, events, some)
		parts = append(parts, added...)
		for _, i := range some[claimsIn(added):] {
			settled(i, err)
		}
	}
	w.await(ctx, events, parts, settled)
}

// add puts claims into the adder, by their places in events, as soon as there is capacity for all. The error is for those that are in
// none of the parts.
func (w *Writer) add(ctx context.Context, events []models.RawEvent, claims []int) ([]part, error) {
	n := int64(len(claims))
	if err := w.capacity.Acquire(ctx, n); err != nil {
		return nil, fmt.Errorf("writer: submit: %w", err)
	}
	parts, pending := w.adder.add(events, claims, w.clock.Now)
	added := int64(claimsIn(parts))
	w.capacity.Release(n - added)
	if size := int64(w.cfg.FlushSize); pending == added || pending >= size && pending-added < size {
		w.signal()
	}
	return parts, ErrClosed
}

// await settles the claims of each part when its cell was flushed, and those of locked campaigns when they were written later.
func (w *Writer) await(ctx context.Context, events []models.RawEvent, parts []part, settled func(i int, err error)) {
	later := make(map[*waiting][]int)
	for _, p := range parts {
		err := waitFor(ctx, p.cell.done)
		for _, i := range p.claims {
			switch {
			case err != nil:
				settled(i, err)
			case p.cell.later[events[i].LotID()] != nil:
				locked := p.cell.later[events[i].LotID()]
				later[locked] = append(later[locked], i)
			default:
				settled(i, p.cell.err)
			}
		}
	}
	for locked, claims := range later {
		err := waitFor(ctx, locked.done)
		if err == nil {
			err = locked.err
		}
		for _, i := range claims {
			settled(i, err)
		}
	}
}

func waitFor(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("writer: submit: %w", context.Cause(ctx))
	}
}

func (w *Writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run flushes one batch after the other until the writer is closed and empty. While one commits the next one grows: a hot
// campaign is one row, so that a second transaction beside the first would mostly wait for it.
func (w *Writer) run(ctx context.Context) {
	defer close(w.stopped)
	defer w.abort(nil)
	for w.due() {
		w.flush(ctx, w.adder.take(w.cfg.FlushSize))
	}
	w.running.Wait()
}

// interval is how long the oldest pending claim waits for others. It follows the number of campaigns and shards in the flush before.
func (w *Writer) interval() time.Duration {
	return max(w.cfg.FlushInterval, min(intervalMax, time.Duration(w.lots)*intervalPerLot))
}

// due blocks until a flush is due. It returns false when the writer is closed and empty.
func (w *Writer) due() bool {
	for {
		pending := w.adder.pending.Load()
		if pending >= int64(w.cfg.FlushSize) {
			return true
		}
		select {
		case <-w.closing:
			return w.adder.pending.Load() > 0
		default:
		}
		var timer <-chan time.Time
		if pending > 0 {
			wait := w.interval() - w.clock.Since(w.adder.oldest())
			if wait <= 0 {
				return true
			}
			timer = w.clock.After(wait)
		}
		select {
		case <-w.wake:
		case <-w.closing:
		case <-timer:
		}
	}
}

// Close takes no more events and flushes what is pending until ctx ends. It logs how much it flushed, and how much the writer
// flushed since its start. Events that are not flushed by then are answered with ErrClosed, and Close returns an error that
// wraps ctx's. It may be called more than once.
func (w *Writer) Close(ctx context.Context) error {
	first := false
	w.closeOnce.Do(func() { first = true })
	events := w.flushed.events.Load()
	units := w.flushed.units.Load()
	if first {
		w.adder.close()
		close(w.closing)
	}
	var err error
	select {
	case <-w.stopped:
	case <-ctx.Done():
		w.abort(ErrClosed)
		<-w.stopped
		err = fmt.Errorf("writer: close: %w", context.Cause(ctx))
	}
	if first {
		w.cfg.Logger.LogAttrs(context.WithoutCancel(ctx), slog.LevelInfo, "writer closed",
			slog.Int64("events_flushed_at_close", w.flushed.events.Load()-events),
			slog.Int64("units_flushed_at_close", w.flushed.units.Load()-units),
			slog.Int64("events_not_flushed", w.metrics.dropped.Load()),
			slog.Int64("events_flushed_ever", w.flushed.events.Load()),
			slog.Int64("units_flushed_ever", w.flushed.units.Load()))
	}
	return err
}

// oldestAge is how long the oldest event has been in the writer; 0 when there is none.
func (w *Writer) oldestAge() time.Duration {
	oldest := w.oldest()
	if oldest.IsZero() {
		return 0
	}
	return max(0, w.clock.Since(oldest))
}
