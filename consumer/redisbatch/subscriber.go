package redisbatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"
)

// ErrClosed reports that the subscriber is closed.
var ErrClosed = errors.New("redisbatch: subscriber is closed")

// Subscriber is a watermill message.Subscriber; see the package. It is
// safe for concurrent use. A stream can have one subscription at a
// time, as all share the consumer name.
type Subscriber struct {
	cfg     Config
	closing context.Context
	close   context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

var _ message.Subscriber = (*Subscriber)(nil)

// New returns a Subscriber, or a wrapped ErrConfig. It does not use
// Redis yet. Its metrics stay registered.
func New(cfg Config) (*Subscriber, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if _, err := newCounters(&cfg); err != nil {
		return nil, err
	}
	s := &Subscriber{cfg: cfg}
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// Subscribe starts reading a stream. It does not wait for Redis. A
// missing group is created later, from the first entry on.
//
// When ctx or the subscriber ends, reading stops. Messages in flight
// have CloseTimeout to be acked, and then the channel is closed.
// Contexts of messages have the values of ctx.
func (s *Subscriber) Subscribe(ctx context.Context, stream string) (<-chan *message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	counters, err := newCounters(&s.cfg, s.cfg.Group, s.cfg.Partition(stream))
	if err != nil {
		return nil, err
	}
	stop, cancel := context.WithCancel(ctx)
	detach := context.AfterFunc(s.closing, cancel)
	sub := newSubscription(stop, &s.cfg, counters, stream)
	s.running.Go(func() {
		defer close(sub.out)
		sub.run()
		detach()
		cancel()
	})
	return sub.out, nil
}

// Close stops all subscriptions and waits for them. It is idempotent.
// The Redis client stays open.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.running.Wait()
	return nil
}

// finishTimeout bounds the last acknowledgements
// at a stop. The rest is delivered again.
const finishTimeout = 2 * time.Second

// subscription reads one stream. One goroutine reads, one per message
// waits for its ack, and one sends acknowledgements and refreshes.
type subscription struct {
	cfg      *Config
	stream   string
	log      *slog.Logger
	counters counters

	stop    context.Context // ends when reading has to stop
	ctx     context.Context // ends when the drain is over; parent of all messages
	giveUp  context.CancelFunc
	out     chan *message.Message
	window  *window
	waiting sync.WaitGroup // goroutines that wait for acks
}

func newSubscription(stop context.Context, cfg *Config, counters counters, stream string) *subscription {
	ctx, giveUp := context.WithCancel(context.WithoutCancel(stop))
	return &subscription{
		cfg:      cfg,
		stream:   stream,
		log:      cfg.Logger.With("stream", stream, "group", cfg.Group, "consumer", cfg.Name),
		counters: counters,
		stop:     stop,
		ctx:      ctx,
		giveUp:   giveUp,
		out:      make(chan *message.Message),
		window:   newWindow(cfg.Window),
	}
}

// run returns after stop has ended and all
// in flight is acknowledged or given up.
func (s *subscription) run() {
	acking, stopAcking := context.WithCancel(context.Background())
	defer stopAcking()
	var reader, acker sync.WaitGroup
	reader.Go(func() { newReader(s).run() })
	acker.Go(func() { s.ack(acking) })
	<-s.stop.Done()
	drained := within(s.cfg.CloseTimeout, func() {
		reader.Wait()
		s.waiting.Wait()
	})
	if !drained {
		s.log.Warn("handlers did not finish in time: their messages will be delivered again", "entries", s.window.count())
	}
	s.giveUp()
	s.waiting.Wait()
	stopAcking()
	// A stalled Redis blocks a command beyond its
	// context. A stop does not wait for that.
	finished := within(finishTimeout, func() {
		acker.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
		defer cancel()
		s.sendAcks(ctx)
		// Others can claim the rest at once.
		s.claim(ctx, time.Now().Add(time.Second), "idle", expiredIdle.Milliseconds())
		s.counters.inFlight.Sub(float64(s.window.count()))
		s.counters.oldest.Set(0)
	})
	if !finished {
		s.log.Warn("Redis does not answer: the stop does not wait for it," +
			" and what was not acknowledged will be delivered again")
	}
}

// within reports whether f returned in time, and then waits no longer.
func within(limit time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}

// redisBackoff is at most half a second, so
// that messages flow soon after a failover.
func redisBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = 50 * time.Millisecond
	b.MaxInterval = 333 * time.Millisecond
	b.Multiplier = 2
	return b
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
