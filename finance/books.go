package finance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"

	"dibs/models/event"
)

// Defaults and limits of Config.
const (
	// DefaultBatchSize: entries: larger batches measured no cheaper per entry.
	DefaultBatchSize = 1000
	DefaultInterval  = 10 * time.Millisecond // how long a batch's first event waits for others
	BatchSizeMax     = 5000                  // entries
)

var (
	// ErrConfig is wrapped by every refusal of a Config. The message names
	// the field.
	ErrConfig = errors.New("finance: bad configuration")
	// ErrClosed means the books were closed before the event was credited:
	// deliver it again.
	ErrClosed = errors.New("finance: books closed")
	// ErrConflict means another entry has the event's id.
	ErrConflict = errors.New("finance: another entry has this id")
	// ErrPaid means the event's packet was already paid for another claim.
	ErrPaid = errors.New("finance: the packet is paid already")
)

// Config configures Books.
type Config struct {
	// DB has accounts and account_entries. Required; sqlstore.Open opens it
	// as Books needs it.
	DB *gorm.DB

	BatchSize int           // entries per transaction; 0 is DefaultBatchSize
	Interval  time.Duration // an event's longest wait for others; 0 is DefaultInterval

	Logger     *slog.Logger          // required
	Registerer prometheus.Registerer // nil: no metrics
}

// WithDefaults returns a copy with defaults for zero fields.
func (c Config) WithDefaults() Config {
	c.BatchSize = cmp.Or(c.BatchSize, DefaultBatchSize)
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	return c
}

// Validate returns nil, or ErrConfig wrapped with the field's name.
func (c Config) Validate() error {
	switch {
	case c.DB == nil:
		return fmt.Errorf("%w: DB is required", ErrConfig)
	case c.Logger == nil:
		return fmt.Errorf("%w: Logger is required", ErrConfig)
	case c.BatchSize < 1 || c.BatchSize > BatchSizeMax:
		return fmt.Errorf("%w: BatchSize must be 1 to %d", ErrConfig, BatchSizeMax)
	case c.Interval < 0 || c.Interval > time.Minute:
		return fmt.Errorf("%w: Interval must be 0 to 1m", ErrConfig)
	}
	return nil
}

// Books credits events, many per transaction. Goroutines may submit events
// concurrently, and several Books and processes may get the same events:
// each is credited once.
type Books struct {
	cfg     Config
	metrics *booksMetrics

	in        chan *submission
	closing   chan struct{}
	closeOnce sync.Once
	stopped   chan struct{}
	abort     context.CancelCauseFunc
}

type submission struct {
	entry Entry
	done  chan error // buffered, so that the answer never blocks
}

// NewBooks checks cfg and starts. Close stops it. Errors: ErrConfig.
func NewBooks(cfg Config) (*Books, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &Books{
		cfg: cfg, metrics: newBooksMetrics(cfg.Registerer),
		in: make(chan *submission), closing: make(chan struct{}), stopped: make(chan struct{}),
	}
	ctx, abort := context.WithCancelCause(context.Background())
	b.abort = abort
	go b.run(ctx)
	return b, nil
}

// Handle is a consumer.HandleFunc. It returns nil once the event is
// credited, was credited before, or needs no credit. For claims that were
// given up or dropped it returns nil once their credits are reversed.
// Errors: consumer.Permanent with ErrEvent, ErrConflict, ErrPaid, or the
// database's refusal of the data; ErrClosed; ctx's own; any other of the
// database, to be retried.
func (b *Books) Handle(ctx context.Context, e event.Event, _ []byte) error {
	if e.Type == event.ClaimsGivenUp || e.Type == event.ClaimsDropped {
		return b.reverse(ctx, &e)
	}
	entry, credits, err := EntryOf(&e)
	switch {
	case err != nil:
		return b.refuse(err)
	case !credits:
		return nil
	}
	s := &submission{entry: entry, done: make(chan error, 1)}
	select {
	case b.in <- s:
	case <-b.closing:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("finance: %w", context.Cause(ctx))
	}
	select {
	case err := <-s.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("finance: %w", context.Cause(ctx))
	}
}

// run credits batch after batch. During a commit the next batch's events
// wait.
func (b *Books) run(ctx context.Context) {
	defer close(b.stopped)
	defer b.abort(nil)
	for {
		select {
		case first := <-b.in:
			b.credit(ctx, b.gather(first))
		case <-b.closing:
			return
		}
	}
}

// gather collects events for the interval, up to a batch.
func (b *Books) gather(first *submission) []*submission {
	batch := []*submission{first}
	timer := time.NewTimer(b.cfg.Interval)
	defer timer.Stop()
	for len(batch) < b.cfg.BatchSize {
		select {
		case s := <-b.in:
			batch = append(batch, s)
		case <-timer.C:
			return batch
		case <-b.closing:
			return batch
		}
	}
	return batch
}

// Close refuses further events and waits for the running transaction until
// ctx ends. Then it cancels the transaction and returns an error that wraps
// ctx's. A clean close logs how many events were credited, redelivered and
// refused. It may be called again.
func (b *Books) Close(ctx context.Context) error {
	first := false
	b.closeOnce.Do(func() { first = true; close(b.closing) })
	select {
	case <-b.stopped:
		if first {
			b.cfg.Logger.LogAttrs(context.WithoutCancel(ctx), slog.LevelInfo, "books closed",
				slog.Int64("credited_ever", b.metrics.totals.credited.Load()),
				slog.Int64("redelivered_ever", b.metrics.totals.redelivered.Load()),
				slog.Int64("refused_ever", b.metrics.totals.refused.Load()))
		}
		return nil
	case <-ctx.Done():
		b.abort(ErrClosed)
		<-b.stopped
		return fmt.Errorf("finance: close: %w", context.Cause(ctx))
	}
}
