package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"dibs/lua"
	"dibs/models"
)

// Defaults of ServiceConfig.
const (
	// DefaultHandleTimeout bounds one attempt, so that a handler that hangs does not keep its message for ever.
	DefaultHandleTimeout = time.Minute
	// DefaultParkedMax is far more than people look through, and some 50 MB of Redis.
	DefaultParkedMax = 100_000
	// countParkedEvery is how often the metric of parked messages is brought up to date.
	countParkedEvery = 10 * time.Second
)

// HandleFunc takes one event for good. payload is the event's JSON, for fields that models.Event lacks. It returns
//
//   - nil: the event is taken, or none of this service's business. It is acked, and does not come again but after a crash.
//   - an error made by [Permanent]: no redelivery will cure it. The message is parked with the reason, and acked.
//   - any other error: the message comes again after a back-off; those behind it do not wait.
//
// Delivery is at least once: deduplicate on e.ID. Event types that it does not know it passes over with nil. Up to
// SubscriberConfig.Window calls a partition run at once, so that a handler may gather them into batches and return when its
// batch is committed. ctx ends with the attempt's timeout, or when a stop has lasted too long.
type HandleFunc func(ctx context.Context, e models.Event, payload []byte) error

// ServiceConfig configures a Service.
type ServiceConfig struct {
	Client     redis.UniversalClient // required; never closed here
	Partitions int                   // number of claim streams, DIBS_PARTITIONS; 0 is 1
	Group      string                // required; a consumer group of its own for each service. Name it in DIBS_GROUPS
	Name       string                // required; this process within the group, see SubscriberConfig.Consumer
	Handle     HandleFunc            // required
	Logger     *slog.Logger          // required
	Registerer prometheus.Registerer // required

	// Attempts is how often a process hands a message to the handler before it parks it as well; 0 is for ever, which is
	// right where whoever stands behind the handler comes back some day.
	Attempts int
	Backoff  Backoff       // between attempts; 100 ms to 30 s
	Timeout  time.Duration // of one attempt
	// ParkedMax is the most parked messages of a partition. Above it nothing more is parked: such messages stay in the
	// stream and are tried again and again, until somebody has looked after the parked ones.
	ParkedMax int64

	// Tuning changes how the streams are read. What is named above, Metrics, Decode, PoisonKey, PoisonMax and NackBackoff
	// are set here.
	Tuning SubscriberConfig
}

// WithDefaults returns a copy with the zero fields filled in.
func (c ServiceConfig) WithDefaults() ServiceConfig {
	c.Partitions = orDefault(c.Partitions, 1)
	c.Timeout = orDefault(c.Timeout, DefaultHandleTimeout)
	c.ParkedMax = orDefault(c.ParkedMax, DefaultParkedMax)
	return c
}

// Validate returns nil, or ErrConfig wrapped, for a configuration that has its defaults.
func (c *ServiceConfig) Validate() error {
	switch {
	case c.Partitions < 1 || c.Partitions > lua.PartitionsMax:
		return refuse("Partitions", fmt.Sprintf("must be 1 to %d", lua.PartitionsMax))
	case c.Name == "":
		return refuse("Name", "is missing")
	case c.Handle == nil:
		return refuse("Handle", "is missing")
	case c.Registerer == nil:
		return refuse("Registerer", "is missing")
	case c.Attempts < 0:
		return refuse("Attempts", "must not be negative")
	case c.Timeout < time.Millisecond:
		return refuse("Timeout", "must be at least 1ms")
	case c.ParkedMax < 1:
		return refuse("ParkedMax", "must be at least 1")
	}
	return nil
}

// Service brings every event of all claim streams to a handler, in a consumer group of its own: see HandleFunc for what
// becomes of them. What it parks is looked after with a [ParkingLot].
type Service struct {
	cfg        ServiceConfig
	subscriber *Subscriber
	lot        *ParkingLot
}

// NewService returns a Service, or ErrConfig wrapped. It does not talk to Redis yet.
func NewService(cfg ServiceConfig) (*Service, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	tuning := cfg.Tuning
	tuning.Client, tuning.Group, tuning.Consumer, tuning.Logger = cfg.Client, cfg.Group, cfg.Name, cfg.Logger
	tuning.Metrics, tuning.Decode, tuning.NackBackoff = nil, decode, cfg.Backoff
	tuning.PoisonMax = cfg.ParkedMax
	tuning.PoisonKey = keyOf(cfg.Partitions, func(p int) string { return lua.ParkedKey(p, cfg.Group) })
	subscriber, err := NewSubscriber(tuning)
	if err != nil {
		return nil, err
	}
	if subscriber.cfg.Metrics, err = NewMetrics(cfg.Registerer); err != nil {
		return nil, err
	}
	return &Service{cfg: cfg, subscriber: subscriber, lot: NewParkingLot(cfg.Client, cfg.Partitions, cfg.Group)}, nil
}

// Run reads until ctx is cancelled, then stops reading, lets handlers in flight finish within the CloseTimeout of the
// tuning, acks what they took, and returns nil. It may be called once. Trouble with Redis does not end it.
func (s *Service) Run(ctx context.Context) error {
	counting, stop := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error { s.countParked(counting); return nil })
	err := route(ctx, s.subscriber, s.cfg.Partitions, s.handle)
	stop()
	_ = group.Wait() // countParked never fails
	return err
}

func (s *Service) handle(msg *message.Message) (err error) {
	event, decoded := Decoded(msg.Context()).(*models.Event)
	if !decoded {
		return ErrForeign
	}
	err = attempt(msg.Context(), &s.cfg, event, msg.Payload)
	if n := Attempt(msg.Context()); err != nil && s.cfg.Attempts > 0 && n >= s.cfg.Attempts {
		return Permanent(fmt.Errorf("gave up after %d attempts: %w", n, err))
	}
	return err
}

// attempt calls the handler once. A panic is an error like any other: it must not take the other messages along.
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

// countParked keeps the metric of parked messages until ctx ends: replays by other processes lower it, too.
func (s *Service) countParked(ctx context.Context) {
	for {
		for p := range s.cfg.Partitions {
			if n, err := s.lot.count(ctx, p); err == nil { // if not, the reader complains about Redis already
				s.subscriber.cfg.Metrics.parked.WithLabelValues(s.cfg.Group, lua.StreamKey(p)).Set(float64(n))
			}
		}
		if !pause(ctx, countParkedEvery) {
			return
		}
	}
}
