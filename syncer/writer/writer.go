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
	"dibs/models"
	"dibs/syncer/adder"
)

// ErrClosed says that the writer was closed.
var ErrClosed = errors.New("writer: closed")

// Writer applies what readers of the claim streams add, many entries in one transaction. Each partition has one reader at a
// time in a process. Any number of processes may have a Writer.
type Writer struct {
	*store

	cfg     Config
	metrics *metrics
	adder   *adder.Adder

	closing   chan struct{}
	closeOnce sync.Once
	stopped   chan struct{} // closed when nothing runs any more
	abort     context.CancelCauseFunc

	begunAt  time.Time // when the last flush began; only run uses it
	lots     int       // campaigns and shards in the last flush; only run uses it
	loadedAt time.Time // begin of the last flush with loads; likewise
	waitAt   time.Time // when to look for sums that wait; only run uses it
	checkAt  time.Time // when to compare offsets; only run uses it
	flushing atomic.Pointer[time.Time]
	flushed  struct{ events, units atomic.Int64 } // since the start
}

// New checks cfg and starts a writer; Close stops it. Errors: sqlstore.ErrConfig.
func New(cfg Config) (*Writer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := unstarted(cfg, defaultTuning())
	w.start()
	return w, nil
}

func unstarted(cfg Config, t tuning) *Writer {
	w := &Writer{
		store: newStore(cfg.DB, t.of(cfg.Partitions)), cfg: cfg, adder: adder.New(cfg.Partitions, entriesMax, t.clock.Now),
		closing: make(chan struct{}), stopped: make(chan struct{}),
	}
	w.metrics = newMetrics(cfg.Registerer, w.oldestAge, w.lockedLots)
	return w
}

func (w *Writer) start() {
	ctx, abort := context.WithCancelCause(context.Background())
	w.abort = abort
	go w.run(ctx)
}

// Begin begins the next turn of the reader of a partition. at is where MySQL is: the first read follows it. Errors: ErrClosed,
// and those of the database.
func (w *Writer) Begin(ctx context.Context, partition int) (turn int64, at models.Offset, err error) {
	if w.isClosing() {
		return 0, at, ErrClosed
	}
	offsets, err := readOffsets(ctx, w.db.ConnPool, []int{partition}, "")
	at, known := offsets[partition]
	if err == nil && !known {
		at = models.NoOffset()
		err = newOffset(ctx, w.db.ConnPool, w.db.Name(), partition)
	}
	if err != nil {
		return 0, at, fmt.Errorf("writer: offset of partition %d: %w", partition, err)
	}
	if !at.IsStart() {
		w.cfg.Applied(map[int]models.Offset{partition: at}) // whoever committed it may have died before it told anybody
	}
	return w.adder.Begin(partition, at), at, nil
}

// Room waits until the writer takes entries of a partition, and returns how many. Errors: adder.ErrTurn, and why ctx ended.
func (w *Writer) Room(ctx context.Context, partition int, turn int64) (int, error) {
	return w.adder.Room(ctx, partition, turn)
}

// Add takes a read that follows the one before. The writer retains its payloads. Errors: adder.ErrTurn.
func (w *Writer) Add(read *models.StreamRead) error { return w.adder.Add(read) }

func (w *Writer) isClosing() bool {
	select {
	case <-w.closing:
		return true
	default:
		return false
	}
}

// run flushes one batch after the other until the writer is closed and empty. While one commits the next one grows: a hot
// campaign is one row, so that a second transaction beside the first would mostly wait for it.
func (w *Writer) run(ctx context.Context) {
	defer close(w.stopped)
	defer w.abort(nil)
	for w.due() {
		now := w.clock.Now()
		if !now.Before(w.checkAt) {
			w.checkAt = now.Add(checkOffsets)
			w.endMoved(ctx)
			continue
		}
		if !now.Before(w.waitAt) {
			w.addWaiting(ctx)
			continue
		}
		if taken := w.adder.SumThenReset(); len(taken) > 0 {
			w.flush(ctx, taken)
		}
	}
}

// endMoved ends the turns of readers that have nothing to read, and whose offset somebody else has moved: MySQL was restored,
// or their partition has another reader.
func (w *Writer) endMoved(ctx context.Context) {
	empty := w.adder.Empty()
	if len(empty) == 0 {
		return
	}
	partitions := make([]int, len(empty))
	for i := range empty {
		partitions[i] = empty[i].Partition
	}
	ctx, cancel := context.WithTimeout(ctx, w.flushTimeout)
	defer cancel()
	offsets, err := Offsets(ctx, w.db.ConnPool, partitions...)
	if err != nil {
		return // MySQL is away. The next look tells, or the next flush
	}
	for i := range empty {
		if e := &empty[i]; offsets[e.Partition] != e.Upto {
			w.adder.End(e.Partition, e.Turn)
			w.metrics.moved.Inc()
		}
	}
}

// interval is how long the oldest pending claim waits for others. It follows the number of campaigns and shards in the flush
// before.
func (w *Writer) interval() time.Duration {
	return max(w.cfg.FlushInterval, min(intervalMax, time.Duration(w.lots)*intervalPerLot))
}

// due blocks until a flush is due, sums that wait are, or a look at the offsets is. It returns false when the writer is closed and empty.
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
			wait = min(wait, awaitedApart-w.clock.Since(w.begunAt))
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

// Close takes no more entries and flushes what is pending until ctx ends. It logs how much it flushed, and how much the writer
// flushed since its start. What is not flushed by then is read again; Close returns an error that wraps ctx's then. It may be
// called more than once.
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

// oldestAge is how long the oldest event has been in the writer; 0 when there is none.
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
