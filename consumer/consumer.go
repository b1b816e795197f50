package consumer

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"dibs/internal/pulse"
	"dibs/internal/tracing"
	"dibs/lua"
	"dibs/models"
)

// Sink stores events for good.
type Sink interface {
	// Submit stores a batch of events. Before it returns it calls settled once for each of them, by its place in the batch, from one
	// goroutine at a time: with nil only after the event is committed, or parked for people to look at. After any error the event is
	// delivered again, in a batch of its own. Dozens of Submits run at once. ctx ends when a stop has lasted too long.
	Submit(ctx context.Context, batch []models.RawEvent, settled func(i int, err error))
}

// Config configures a Consumer.
type Config struct {
	Client     redis.UniversalClient // required: Redis 7.0 or later, single or cluster; never closed here
	Partitions int                   // number of claim streams; 0 is 1
	// Name is this process within its group. Required. It should survive a restart, so that a new process starts with what the old
	// one left. No two live processes may share it.
	Name string
	Sink Sink // required

	// Replicated is called before entries that were read are handed out, and waits until a failover does not undo them: those of a primary
	// that is replaced are not of the stream that goes on. nil: there is nothing to wait for. After an error they are read again.
	Replicated func(ctx context.Context, stream string) error

	Window int // most messages of one stream that are read and not yet acknowledged in Redis; 0 is DefaultWindow
	// CloseTimeout is how long a stop waits for Submits in flight; 0 is DefaultCloseTimeout. Their contexts end when it is over, not
	// when it starts.
	CloseTimeout time.Duration

	Logger     *slog.Logger          // required
	Registerer prometheus.Registerer // required
	Pulse      *pulse.Pulse          // has a beat each time that a stream was read; nil is nobody's
	Tracer     *tracing.Tracer       // nil: no traces
}

// WithDefaults returns a copy with the zero fields filled in.
func (c Config) WithDefaults() Config {
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.Window = cmp.Or(c.Window, DefaultWindow)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, DefaultCloseTimeout)
	return c
}

// Validate returns nil, or ErrConfig wrapped, for a configuration that has its defaults.
func (c *Config) Validate() error {
	if c.Sink == nil {
		return refuse("Sink", "is missing")
	}
	reading := c.reading()
	return reading.validate()
}

func (c *Config) reading() subscriberConfig {
	return subscriberConfig{
		client: c.Client, partitions: c.Partitions, group: models.GroupSyncer, name: c.Name, replicated: c.Replicated, window: c.Window,
		closeTimeout: c.CloseTimeout, nackBackoff: Backoff{}.withDefaults(), decode: true, inBatches: true,
		poisonKey: streamKeys(c.Partitions, lua.PoisonKey),
		poisonMax: DefaultParkedMax, log: c.Logger, registerer: c.Registerer, pulse: c.Pulse, tracer: c.Tracer, timing: defaultTiming(),
	}
}

// Consumer brings the events of all claim streams to a Sink, for the group models.GroupSyncer.
type Consumer struct {
	sink       Sink
	subscriber *subscriber
}

// New returns a Consumer, or ErrConfig wrapped. It does not talk to Redis yet. Its metrics stay registered.
func New(cfg Config) (*Consumer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s, err := newSubscriber(cfg.reading())
	if err != nil {
		return nil, err
	}
	return &Consumer{sink: cfg.Sink, subscriber: s}, nil
}

// Run reads until ctx is cancelled. It then stops reading, lets Submits in flight finish within CloseTimeout, acknowledges what was
// committed, and returns nil. It may be called once.
func (c *Consumer) Run(ctx context.Context) error {
	return c.subscriber.run(ctx, toSink(&c.subscriber.cfg, c.sink))
}
