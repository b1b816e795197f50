package consumer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"dibs/internal/pulse"
	"dibs/internal/sleep"
	"dibs/internal/tracing"
	"dibs/lua"
	"dibs/models"
)

// countParkedEvery is how often the metric of parked messages is updated.
const countParkedEvery = 10 * time.Second

// HandleFunc handles one event. payload is the event's JSON, for fields that models.Event lacks. It returns
//
//   - nil: the event was handled, or does not concern this service. It is acknowledged, and comes again only after a crash.
//   - an error made by [Permanent]: no redelivery will cure it. The message is parked with the reason, and acknowledged.
//   - any other error: the message is delivered again after a back-off; the messages behind it do not wait.
//
// Delivery is at least once: deduplicate on e.ID. For event types that it does not know it returns nil. Up to ServiceConfig.Window calls
// a partition run at once, so that a handler may gather them into batches and return when its batch is committed. ctx ends with the
// attempt's timeout, or when a stop has lasted too long.
type HandleFunc func(ctx context.Context, e models.Event, payload []byte) error

// ServiceConfig configures a Service.
type ServiceConfig struct {
	Client     redis.UniversalClient // required: Redis 7.0 or later, single or cluster; never closed here
	Partitions int                   // number of claim streams, DIBS_PARTITIONS; 0 is 1
	Group      string                // required; a consumer group of its own for each service. It is registered as soon as Run has created it
	Name       string                // required; this process within the group, see Config.Name
	Handle     HandleFunc            // required

	// Attempts is how often a process hands a message to the handler before it parks it as well. 0 is no bound, which is right where
	// the handler's database comes back some day.
	Attempts int
	Backoff  Backoff       // between attempts; 100 ms to 30 s
	Timeout  time.Duration // of one attempt; 0 is DefaultHandleTimeout
	// ParkedMax is the most parked messages of a partition; 0 is DefaultParkedMax. When so many are parked, further ones stay in the
	// claim stream and are tried again and again, until parked messages are replayed or discarded.
	ParkedMax int64

	Replicated   func(ctx context.Context, stream string) error // see Config.Replicated
	Window       int                                            // see Config.Window
	CloseTimeout time.Duration                                  // see Config.CloseTimeout

	Logger     *slog.Logger          // required
	Registerer prometheus.Registerer // required
	Pulse      *pulse.Pulse          // has a beat each time that a stream was read; nil is nobody's
	Tracer     *tracing.Tracer       // nil: no traces
}

// WithDefaults returns a copy with the zero fields filled in.
func (c ServiceConfig) WithDefaults() ServiceConfig {
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.Backoff = c.Backoff.withDefaults()
	c.Timeout = cmp.Or(c.Timeout, DefaultHandleTimeout)
	c.ParkedMax = cmp.Or(c.ParkedMax, DefaultParkedMax)
	c.Window = cmp.Or(c.Window, DefaultWindow)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, DefaultCloseTimeout)
	return c
}

// Validate returns nil, or ErrConfig wrapped, for a configuration that has its defaults.
func (c *ServiceConfig) Validate() error {
	switch {
	case c.Handle == nil:
		return refuse("Handle", "is missing")
	case c.Attempts < 0:
		return refuse("Attempts", "must not be negative")
	case c.Timeout < time.Millisecond:
		return refuse("Timeout", "must be at least 1ms")
	case c.ParkedMax < 1:
		return refuse("ParkedMax", "must be at least 1")
	}
	reading := c.reading()
	return reading.validate()
}

func (c *ServiceConfig) reading() subscriberConfig {
	return subscriberConfig{
		client: c.Client, partitions: c.Partitions, group: c.Group, name: c.Name, replicated: c.Replicated, window: c.Window,
		closeTimeout: c.CloseTimeout, nackBackoff: c.Backoff, decode: true, poisonMax: c.ParkedMax,
		poisonKey: streamKeys(c.Partitions, func(p int) string { return lua.ParkedKey(p, c.Group) }),
		log:       c.Logger, registerer: c.Registerer, pulse: c.Pulse, tracer: c.Tracer, timing: defaultTiming(),
	}
}

// Service brings every event of all claim streams to a handler, in a consumer group of its own: see HandleFunc. A [ParkingLot] lists,
// replays and discards what it parks.
type Service struct {
	cfg        ServiceConfig
	subscriber *subscriber
	lot        *ParkingLot
}

// NewService returns a Service, or ErrConfig wrapped. It does not talk to Redis yet.
func NewService(cfg ServiceConfig) (*Service, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s, err := newSubscriber(cfg.reading())
	if err != nil {
		return nil, err
	}
	return &Service{cfg: cfg, subscriber: s, lot: NewParkingLot(cfg.Client, cfg.Partitions, cfg.Group)}, nil
}

// Run reads until ctx is cancelled. It then stops reading, lets handlers in flight finish within CloseTimeout, acknowledges what they
// handled, and returns nil. It may be called once. Errors of Redis do not end it.
func (s *Service) Run(ctx context.Context) error {
	counting, stop := context.WithCancel(ctx)
	var counter sync.WaitGroup
	counter.Go(func() { s.countParked(counting) })
	err := s.subscriber.run(ctx, handler(s.cfg.Logger, func(msg *message.Message) error {
		d := deliveryOf(msg.Context())
		e := &d.entries[0].event
		ctx, span := d.received(msg.Context(), e)
		err := s.handle(ctx, e.Event, e.Payload)
		span.Done(err)
		return err
	}))
	stop()
	counter.Wait()
	return err
}

func (s *Service) handle(ctx context.Context, e models.Event, payload []byte) error {
	err := attempt(ctx, &s.cfg, &e, payload)
	if n := entryOf(ctx).attempts; err != nil && s.cfg.Attempts > 0 && n >= s.cfg.Attempts {
		return Permanent(fmt.Errorf("gave up after %d attempts: %w", n, err))
	}
	return err
}

// attempt calls the handler once. A panic is an error like any other: the process goes on with the other messages.
func attempt(ctx context.Context, cfg *ServiceConfig, e *models.Event, payload []byte) (err error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			cfg.Logger.Error("the handler panicked", "event", e.ID, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("consumer: the handler panicked: %v", p)
		}
	}()
	return cfg.Handle(ctx, *e, payload)
}

// countParked updates the metric of parked messages until ctx ends, because replays by other processes lower it too.
func (s *Service) countParked(ctx context.Context) {
	for {
		for p := range s.cfg.Partitions {
			if n, err := s.lot.count(ctx, p); err == nil { // the reader logs errors of Redis
				s.subscriber.metrics.parked.WithLabelValues(s.cfg.Group, strconv.Itoa(p)).Set(float64(n))
			}
		}
		if sleep.For(ctx, countParkedEvery) != nil {
			return
		}
	}
}
