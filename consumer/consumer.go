package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"dibs/lua"
	"dibs/models"
)

// DefaultGroup is the group of the writer that books claims in MySQL.
const DefaultGroup = "syncer"

// routerGrace is how much longer the Router waits than the subscriptions under it.
const routerGrace = 5 * time.Second

// Sink takes events for good.
type Sink interface {
	// Submit returns nil only after the event is committed, or parked for people to look at. Any error means that it is
	// not, and that it shall come again. Hundreds to thousands of Submits are in flight at once. ctx ends when a stop
	// has lasted too long.
	Submit(ctx context.Context, e models.Event, payload []byte) error
}

// Config configures a Consumer.
type Config struct {
	Client     redis.UniversalClient // required
	Partitions int                   // number of claim streams; 0 is 1
	Group      string                // "" is DefaultGroup
	Name       string                // required; this process within the group, see SubscriberConfig.Consumer
	Sink       Sink                  // required
	Logger     *slog.Logger          // required
	Registerer prometheus.Registerer // required

	// Tuning changes how the streams are read. Its Client, Group, Consumer, Logger,
	// Metrics, Decode and PoisonKey are set here. PoisonMax of 0 is DefaultParkedMax.
	Tuning SubscriberConfig
}

// WithDefaults returns a copy with the zero fields filled in.
func (c Config) WithDefaults() Config {
	c.Partitions = orDefault(c.Partitions, 1)
	c.Group = orDefault(c.Group, DefaultGroup)
	return c
}

// Validate returns nil, or ErrConfig wrapped, for a configuration that has its defaults.
func (c *Config) Validate() error {
	switch {
	case c.Partitions < 1 || c.Partitions > lua.PartitionsMax:
		return refuse("Partitions", fmt.Sprintf("must be 1 to %d", lua.PartitionsMax))
	case c.Name == "":
		return refuse("Name", "is missing")
	case c.Sink == nil:
		return refuse("Sink", "is missing")
	case c.Registerer == nil:
		return refuse("Registerer", "is missing")
	}
	return nil
}

// Consumer brings the events of all claim streams to a Sink.
type Consumer struct {
	cfg        Config
	subscriber *Subscriber
}

// New returns a Consumer, or ErrConfig wrapped. It does not talk to Redis yet. Its metrics are registered once and for all.
func New(cfg Config) (*Consumer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	tuning := cfg.Tuning
	tuning.Client, tuning.Group, tuning.Consumer, tuning.Logger = cfg.Client, cfg.Group, cfg.Name, cfg.Logger
	tuning.PoisonMax = orDefault(tuning.PoisonMax, DefaultParkedMax)
	tuning.Metrics, tuning.PoisonKey, tuning.Decode = nil, keyOf(cfg.Partitions, lua.PoisonKey), decode
	subscriber, err := NewSubscriber(tuning)
	if err != nil {
		return nil, err
	}
	if subscriber.cfg.Metrics, err = NewMetrics(cfg.Registerer); err != nil {
		return nil, err
	}
	return &Consumer{cfg: cfg, subscriber: subscriber}, nil
}

// keyOf names the key that belongs to a claim stream.
func keyOf(partitions int, key func(partition int) string) func(stream string) string {
	keys := make(map[string]string, partitions)
	for p := range partitions {
		keys[lua.StreamKey(p)] = key(p)
	}
	return func(topic string) string { return keys[topic] }
}

// Run reads until ctx is cancelled, then stops reading, lets Submits in flight finish within the CloseTimeout of the
// tuning, acks what was committed, and returns nil. It may be called once.
func (c *Consumer) Run(ctx context.Context) error {
	return route(ctx, c.subscriber, c.cfg.Partitions, c.handle)
}

// route brings the messages of all claim streams to a handler until ctx is cancelled, and closes the subscriber.
func route(ctx context.Context, subscriber *Subscriber, partitions int, handle message.NoPublishHandlerFunc) error {
	log := subscriber.cfg.Logger
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: subscriber.cfg.CloseTimeout + routerGrace}, routerLog{log})
	if err != nil {
		return fmt.Errorf("consumer: making the router: %w", err)
	}
	sorted := Handler(log, handle)
	for p := range partitions {
		stream := lua.StreamKey(p)
		router.AddConsumerHandler(stream, stream, subscriber, sorted)
	}
	err = router.Run(ctx)
	if closeErr := subscriber.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("consumer: running the router: %w", err)
	}
	return nil
}

// decode reads an event. One that can't be read now never will be.
func decode(payload []byte) (any, error) {
	event, err := models.DecodeEvent(payload)
	return &event, err
}

func (c *Consumer) handle(msg *message.Message) error {
	event, decoded := Decoded(msg.Context()).(*models.Event)
	if !decoded {
		return ErrForeign
	}
	return c.cfg.Sink.Submit(msg.Context(), *event, msg.Payload)
}
