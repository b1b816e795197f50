package writer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"dibs/models"
)

// ErrWriterClosed says that the writer stopped before the event was committed: deliver it again.
var ErrClosed = errors.New("syncer: writer closed")

// Writer brings claim events into MySQL, many in one transaction. Any number of goroutines may submit at once, and any
// number of writers, in any number of processes, may be given the same events: each claim counts once.
type Writer struct {
	cfg     Config
	db      *sql.DB
	dialect string
	log     *slog.Logger
	metrics *writerMetrics

	adder *adder
	room  *semaphore.Weighted // PendingMax less what is held
	wake  chan struct{}       // the first claim is pending, or enough for a flush are

	closing   chan struct{}
	closeOnce sync.Once
	stopped   chan struct{} // closed when nothing runs any more
	abort     context.CancelCauseFunc

	flights flights
	flushed struct{ events, units atomic.Int64 } // ever

	step func(name string) // tests only: called between the steps of a flush
}

// NewWriter checks cfg and starts a writer; Close stops it.
func New(cfg Config) (*Writer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w, err := unstarted(cfg)
	if err != nil {
		return nil, err
	}
	w.start()
	return w, nil
}

func unstarted(cfg Config) (*Writer, error) {
	db, err := cfg.DB.DB()
	if err != nil {
		return nil, fmt.Errorf("syncer: writer: %w", err)
	}
	w := &Writer{
		cfg: cfg, db: db, dialect: cfg.DB.Name(), log: cfg.Logger,
		adder: newAdder(cfg.FlushSize), room: semaphore.NewWeighted(int64(cfg.PendingMax)), wake: make(chan struct{}, 1),
		closing: make(chan struct{}), stopped: make(chan struct{}),
		step: func(string) {},
	}
	w.metrics = newWriterMetrics(cfg.Registerer, w.oldestAge)
	return w, nil
}

func (w *Writer) start() {
	ctx, abort := context.WithCancelCause(context.Background())
	w.abort = abort
	go w.run(ctx)
}

// Submit hands in an event and returns nil once it is committed, or parked because it can never be. Any error means that it
// is not known to be committed: deliver it again. It blocks for the flush that holds the event, and before that while
// PendingMax claims are held. The writer keeps payload, which must not be changed afterwards. Events other than
// claim.accepted are passed over. Errors: ErrWriterClosed, or ctx's own.
func (w *Writer) Submit(ctx context.Context, e models.Event, payload []byte) error {
	if e.Type != models.EventClaimAccepted {
		return nil
	}
	if err := w.room.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("syncer: submit: %w", err)
	}
	c, pending := w.adder.add(e, payload, w.cfg.Clock.Now)
	if c == nil {
		w.room.Release(1)
		return ErrClosed
	}
	if pending == 1 || pending == int64(w.cfg.FlushSize) {
		w.nudge()
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("syncer: submit: %w", context.Cause(ctx))
	}
}

func (w *Writer) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run gathers and flushes until the writer is closed and empty. A batch is taken only when a flush may begin, so that
// while all of them commit the next one grows.
func (w *Writer) run(ctx context.Context) {
	defer close(w.stopped)
	defer w.abort(nil)
	var running sync.WaitGroup
	slots := make(chan struct{}, w.cfg.Writers)
	for {
		slots <- struct{}{}
		if !w.due() {
			break
		}
		cells := w.adder.take(w.cfg.FlushSize)
		running.Go(func() {
			w.flush(ctx, cells)
			<-slots
		})
	}
	running.Wait()
}

// due blocks until a flush is due; false says that the writer is closed and empty.
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
			wait := w.cfg.FlushInterval - w.cfg.Clock.Since(w.adder.oldest())
			if wait <= 0 {
				return true
			}
			timer = w.cfg.Clock.After(wait)
		}
		select {
		case <-w.wake:
		case <-w.closing:
		case <-timer:
		}
	}
}

// Close takes no more events, flushes what is pending until ctx ends, and says in the log how much that was, and how much
// was flushed in the writer's life. Events that were not flushed by then are answered with ErrWriterClosed; Close then returns
// an error that wraps ctx's. It may be called more than once.
func (w *Writer) Close(ctx context.Context) error {
	first := false
	w.closeOnce.Do(func() { first = true })
	events, units := w.flushed.events.Load(), w.flushed.units.Load()
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
		err = fmt.Errorf("syncer: writer: close: %w", context.Cause(ctx))
	}
	if first {
		w.log.LogAttrs(context.WithoutCancel(ctx), slog.LevelInfo, "writer closed",
			slog.Int64("events_flushed_at_close", w.flushed.events.Load()-events),
			slog.Int64("units_flushed_at_close", w.flushed.units.Load()-units),
			slog.Int64("events_not_flushed", w.metrics.dropped.Load()),
			slog.Int64("events_flushed_ever", w.flushed.events.Load()),
			slog.Int64("units_flushed_ever", w.flushed.units.Load()))
	}
	return err
}

// oldestAge is how long the oldest event has been waiting in the writer; 0 when none does.
func (w *Writer) oldestAge() time.Duration {
	oldest := earlier(w.adder.oldest(), w.flights.oldest())
	if oldest.IsZero() {
		return 0
	}
	return max(0, w.cfg.Clock.Since(oldest))
}

// flights are the batches being flushed now, by when their oldest claim came.
type flights struct {
	mu    sync.Mutex
	since map[*batch]time.Time
}

func (f *flights) begin(b *batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since == nil {
		f.since = make(map[*batch]time.Time)
	}
	f.since[b] = b.since
}

func (f *flights) end(b *batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.since, b)
}

func (f *flights) oldest() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	var oldest time.Time
	for _, since := range f.since {
		oldest = earlier(oldest, since)
	}
	return oldest
}
