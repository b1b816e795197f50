package consumer

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"dibs/internal/pulse"
	"dibs/models"
)

// Names of unexported things for tests.
const (
	PoisonIDField     = poisonIDField
	PoisonGroupField  = poisonGroupField
	PoisonReasonField = poisonReasonField
	PoisonTriesField  = poisonTriesField
	PoisonAtField     = poisonAtField
)

var (
	ErrClosed   = errClosed
	EnsureGroup = ensureGroup
	Handler     = handler
)

// Subscriber is a subscriber of any stream, with messages of any payload.
type Subscriber = subscriber

// SubscriberConfig configures a Subscriber. What is zero is as in production.
type SubscriberConfig struct {
	Client          redis.UniversalClient
	Group, Consumer string
	Window          int
	CloseTimeout    time.Duration
	NackBackoff     Backoff
	Decode          bool
	Logger          *slog.Logger
	Registerer      prometheus.Registerer

	ReadCount                                  int
	BlockTime, AckDelay, MinIdle, ReclaimEvery time.Duration
	ReadBackoff                                Backoff
	Pulse                                      *pulse.Pulse
}

// NewSubscriber returns a Subscriber, or ErrConfig wrapped.
func NewSubscriber(c SubscriberConfig) (*Subscriber, error) {
	cfg := subscriberConfig{
		client: c.Client, partitions: 1, group: c.Group, name: c.Consumer, window: cmp.Or(c.Window, DefaultWindow),
		closeTimeout: cmp.Or(c.CloseTimeout, DefaultCloseTimeout), nackBackoff: c.NackBackoff.withDefaults(), decode: c.Decode,
		poisonKey: func(stream string) string { return stream + ":poison" }, poisonMax: DefaultParkedMax,
		log: c.Logger, registerer: c.Registerer, pulse: c.Pulse, timing: c.timing(),
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return newSubscriber(cfg)
}

func (c *SubscriberConfig) timing() timing {
	t := defaultTiming()
	return timing{
		readCount: cmp.Or(c.ReadCount, t.readCount), blockTime: cmp.Or(c.BlockTime, t.blockTime), ackDelay: cmp.Or(c.AckDelay, t.ackDelay),
		minIdle: cmp.Or(c.MinIdle, t.minIdle), reclaimEvery: cmp.Or(c.ReclaimEvery, t.reclaimEvery),
		readBackoff: cmp.Or(c.ReadBackoff, t.readBackoff),
	}
}

// SetTiming gives a Consumer that does not run yet the times of a SubscriberConfig.
func (c *Consumer) SetTiming(t SubscriberConfig) {
	c.subscriber.cfg.timing, c.subscriber.cfg.nackBackoff = t.timing(), t.NackBackoff
}

// SetTiming gives a Service that does not run yet the times of a SubscriberConfig.
func (s *Service) SetTiming(t SubscriberConfig) { s.subscriber.cfg.timing = t.timing() }

// EntryID is the stream id of the entry that a message came from, by its context; "" for a message of another subscriber.
func EntryID(ctx context.Context) string {
	if d := deliveryOf(ctx); d != nil {
		return d.entries[0].id
	}
	return ""
}

// Decoded is what Decode made of a message.
func Decoded(msg *message.Message) *models.Event { return &entryOf(msg.Context()).event.Event }

// DropNames removes the names of a group on one stream that have nothing pending and were idle for so long, but one.
func DropNames(ctx context.Context, rdb redis.UniversalClient, group, own string, idle time.Duration) {
	s := &subscriber{cfg: subscriberConfig{client: rdb, partitions: 1, group: group, name: own, log: slog.New(slog.DiscardHandler)}}
	s.dropNames(ctx, idle)
}
