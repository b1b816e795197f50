package writer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"
	"dibs/models/event"
	"dibs/syncer/adder"
	"dibs/syncer/apply"
	"dibs/syncer/offset"

	"github.com/jonboulle/clockwork"
	"gorm.io/gorm"
)

// ErrClosed reports that the writer is closed.
var ErrClosed = errors.New("writer: closed")

// Writer applies entries of the claim streams, many in
// one transaction. A partition has one reader at a time
// in a process. Any number of processes may write.
type Writer struct {
	cfg     Config
	clock   clockwork.Clock
	steps   steps.Steps
	metrics *metrics
	adder   *adder.Adder
	store   *apply.Store

	closing   chan struct{}
	closeOnce sync.Once
	stopped   chan struct{} // closed when run has returned
	abort     context.CancelCauseFunc

	startedAt time.Time // start of the last flush; only run uses it
	lots      int       // campaigns and shards in the last flush; likewise
	loadedAt  time.Time // start of the last flush with loads; likewise
	waitAt    time.Time // when to try waiting sums; likewise
	checkAt   time.Time // when to compare offsets; likewise
	flushing  atomic.Pointer[time.Time]
	flushed   struct{ events, units atomic.Int64 } // since the start

	mu     sync.Mutex
	locked map[adder.Lot]bool // lots whose sums wait
}

// New checks cfg and starts a writer; Close
// stops it. Errors: sqlstore.ErrConfig.
func New(cfg Config) (*Writer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := unstarted(cfg, clockwork.NewRealClock())
	w.start()
	return w, nil
}

func unstarted(cfg Config, clock clockwork.Clock) *Writer {
	w := &Writer{
		cfg: cfg, clock: clock, adder: adder.New(cfg.Partitions, entriesMax, clock.Now),
		closing: make(chan struct{}), stopped: make(chan struct{}), locked: make(map[adder.Lot]bool),
	}
	w.store = apply.New(cfg.DB, cfg.Partitions, clock, &w.steps)
	w.metrics = newMetrics(cfg.Registerer, w.oldestAge, func() int { return len(w.lockedLots()) })
	return w
}

func (w *Writer) start() {
	ctx, abort := context.WithCancelCause(context.Background())
	w.abort = abort
	go w.run(ctx)
}

// Begin starts the next turn of a partition's reader, which reads from
// offset at. Errors: ErrClosed, and those of the database.
func (w *Writer) Begin(ctx context.Context, partition int) (turn int64, at event.Offset, err error) {
	if w.isClosing() {
		return 0, at, ErrClosed
	}
	at, err = offset.ReadOrCreate(ctx, w.cfg.DB, partition)
	if err != nil {
		return 0, at, err
	}
	// the process that committed it may have died before it announced it
	if !at.IsStart() {
		w.cfg.Applied(map[int]event.Offset{partition: at})
	}
	return w.adder.Begin(partition, at), at, nil
}

// Free waits until entries of a partition fit, and returns how many do.
// Errors: adder.ErrTurn, and the cause why ctx ended.
func (w *Writer) Free(ctx context.Context, partition int, turn int64) (int, error) {
	return w.adder.Free(ctx, partition, turn)
}

// Add adds a read that follows the last one, and
// retains its payloads. Errors: adder.ErrTurn.
func (w *Writer) Add(read *event.Read) error { return w.adder.Add(read) }

// Positions returns recent offsets of a stream,
// newest first. Redis may have lost some.
func (w *Writer) Positions(ctx context.Context, partition int) ([]event.Offset, error) {
	return offset.Positions(ctx, w.cfg.DB, partition)
}

// Move is offset.Move.
func (w *Writer) Move(ctx context.Context, partition int, from, to event.Offset) (moved bool, err error) {
	return offset.Move(ctx, w.cfg.DB, w.clock.Now(), partition, from, to, func(*gorm.DB) error { return nil })
}

func (w *Writer) isClosing() bool {
	select {
	case <-w.closing:
		return true
	default:
		return false
	}
}

// run flushes one batch after another until the writer is
// closed and empty. Flushes are serial: a hot campaign is
// one row, on which a second flush would wait.
func (w *Writer) run(ctx context.Context) {
	defer close(w.stopped)
	defer w.abort(nil)
	idle, stop := context.WithCancel(ctx) // Close waits for flushes alone
	defer stop()
	go func() {
		select {
		case <-w.closing:
		case <-idle.Done():
		}
		stop()
	}()
	for w.due() {
		now := w.clock.Now()
		if !now.Before(w.checkAt) {
			w.checkAt = now.Add(checkOffsets)
			w.endMoved(idle)
			continue
		}
		if !now.Before(w.waitAt) {
			w.addWaiting(idle)
			continue
		}
		if taken := w.adder.SumThenReset(); len(taken) > 0 {
			w.flush(ctx, taken)
		}
	}
}

// endMoved ends the turns of idle readers whose offset moved: MySQL was
// restored, or another process reads the partition.
func (w *Writer) endMoved(ctx context.Context) {
	empty := w.adder.Empty()
	if len(empty) == 0 {
		return
	}
	partitions := make([]int, len(empty))
	for i := range empty {
		partitions[i] = empty[i].Partition
	}
	ctx, cancel := context.WithTimeout(ctx, apply.Timeout)
	defer cancel()
	offsets, err := offset.Read(ctx, w.cfg.DB, partitions...)
	if err != nil {
		return // MySQL is away: the next check or flush reports it
	}
	for i := range empty {
		if e := &empty[i]; offsets[e.Partition] != e.Upto {
			w.adder.End(e.Partition, e.Turn)
			w.metrics.moved.Inc()
		}
	}
}

// interval is how long a claim waits for others.
// It grows with the lots of the last flush.
func (w *Writer) interval() time.Duration {
	return max(w.cfg.FlushInterval, min(intervalMax, time.Duration(w.lots)*intervalPerLot))
}

// due blocks until a flush, waiting sums or a check is due.
// It returns false when the writer is closed and empty.
func (w *Writer) due() bool {
	for {
		pending := w.adder.Sum()
		if pending.Entries >= w.cfg.FlushSize || pending.IsFull || pending.IsMove {
			return true
		}
		if w.isClosing() {
			return pending.Entries > 0
		}
		wait := min(w.waitAt.Sub(w.clock.Now()), w.checkAt.Sub(w.clock.Now()))
		if pending.Entries > 0 {
			wait = min(wait, w.interval()-w.clock.Since(pending.Oldest))
		}
		if pending.IsAwaited || pending.Entries > 0 && w.clock.Since(w.loadedAt) < loadsFollow {
			wait = min(wait, awaitedApart-w.clock.Since(w.startedAt))
		}
		if wait <= 0 {
			return true
		}
		timer := w.clock.NewTimer(wait)
		select {
		case <-w.adder.Added():
		case <-w.closing:
		case <-timer.Chan():
		}
		timer.Stop()
	}
}

// Close refuses more entries and flushes pending ones
// until ctx ends. The rest is read again, and the
// error wraps ctx's. It may be called more than once.
func (w *Writer) Close(ctx context.Context) error {
	first := false
	w.closeOnce.Do(func() { first = true })
	events := w.flushed.events.Load()
	units := w.flushed.units.Load()
	if first {
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

// oldestAge is the age of the oldest event in the writer; 0 without events.
func (w *Writer) oldestAge() time.Duration {
	oldest := w.adder.Sum().Oldest
	if flushing := w.flushing.Load(); flushing != nil {
		oldest = *flushing
	}
	if oldest.IsZero() {
		return 0
	}
	return max(0, w.clock.Since(oldest))
}

// noticeRetry counts every retry. It logs
// all but a clash, which ends by itself.
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
