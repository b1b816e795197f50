package finance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"

	"dibs/models"
)

// Defaults of Config.
const (
	BatchSizeDefault = 1000                  // entries: a transaction's cost an entry stops falling at about that
	BatchSizeMax     = 5000                  // entries: eight values each stay below what SQLite takes in one statement, in chunks
	IntervalDefault  = 10 * time.Millisecond // the first event of a batch waits so long for others
	TimeoutDefault   = 30 * time.Second      // one attempt at a transaction
)

var (
	// ErrConfig is wrapped by every refusal of a Config; the message names the field.
	ErrConfig = errors.New("finance: bad configuration")
	// ErrClosed says that the books closed before the event was booked: deliver it again.
	ErrClosed = errors.New("finance: books closed")
	// ErrConflict says that the books hold another entry under the event's id.
	ErrConflict = errors.New("finance: another entry has this id")
)

// Config is how Books work. DB and Logger are required.
type Config struct {
	// DB holds accounts and account_entries, and is opened with TranslateError, without clientFoundRows and RETURNING.
	DB *gorm.DB

	BatchSize int           // most entries of a transaction
	Interval  time.Duration // longest wait of an event for others
	Timeout   time.Duration // of one attempt at a transaction

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// WithDefaults returns a copy with defaults where nothing is set.
func (c Config) WithDefaults() Config {
	if c.BatchSize == 0 {
		c.BatchSize = BatchSizeDefault
	}
	if c.Interval == 0 {
		c.Interval = IntervalDefault
	}
	if c.Timeout == 0 {
		c.Timeout = TimeoutDefault
	}
	return c
}

// Validate returns nil, or ErrConfig wrapped with the name of the field.
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
	case c.Timeout < time.Millisecond:
		return fmt.Errorf("%w: Timeout must be at least 1ms", ErrConfig)
	}
	return nil
}

// Books credits events, many in one transaction. Any number of goroutines may hand in events, and any number of Books, in any
// number of processes, may be given the same ones: each is credited once.
type Books struct {
	cfg     Config
	metrics *booksMetrics

	in        chan *submission
	closing   chan struct{}
	closeOnce sync.Once
	stopped   chan struct{}
	abort     context.CancelCauseFunc
}

// submission is an event that waits for its transaction.
type submission struct {
	entry Entry
	done  chan error // takes one verdict without blocking
}

// NewBooks checks cfg and starts; Close stops it. Errors: ErrConfig.
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

// Handle is a consumer.HandleFunc: it returns nil once the event is credited, was before, or asks for no credit. Errors:
// consumer.Permanent with ErrEvent or ErrConflict, or with what the database has against its data; ErrClosed; ctx's own; any
// other of the database's, to be tried again.
func (b *Books) Handle(ctx context.Context, e models.Event, _ []byte) error {
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

// run books batch after batch. While one is committed the next one gathers before the door.
func (b *Books) run(ctx context.Context) {
	defer close(b.stopped)
	defer b.abort(nil)
	for {
		select {
		case first := <-b.in:
			b.book(ctx, b.gather(first))
		case <-b.closing:
			return
		}
	}
}

// gather waits for events that come within the interval, up to a batch.
func (b *Books) gather(first *submission) []*submission {
	batch := []*submission{first}
	over := time.NewTimer(b.cfg.Interval)
	defer over.Stop()
	for len(batch) < b.cfg.BatchSize {
		select {
		case s := <-b.in:
			batch = append(batch, s)
		case <-over.C:
			return batch
		case <-b.closing:
			return batch
		}
	}
	return batch
}

// Close takes no more events and waits for the transaction under way, until ctx ends: it is then given up, and Close returns
// an error that wraps ctx's. A clean close says in the log what became of the events of its life. It may be called again.
func (b *Books) Close(ctx context.Context) error {
	first := false
	b.closeOnce.Do(func() { first = true; close(b.closing) })
	select {
	case <-b.stopped:
		if first {
			b.cfg.Logger.LogAttrs(context.WithoutCancel(ctx), slog.LevelInfo, "books closed",
				slog.Int64("credited_ever", b.metrics.life.credited.Load()),
				slog.Int64("redelivered_ever", b.metrics.life.redelivered.Load()),
				slog.Int64("refused_ever", b.metrics.life.refused.Load()))
		}
		return nil
	case <-ctx.Done():
		b.abort(ErrClosed)
		<-b.stopped
		return fmt.Errorf("finance: close: %w", context.Cause(ctx))
	}
}
