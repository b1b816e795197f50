package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/cenkalti/backoff/v5"
	"github.com/redis/go-redis/v9"
)

// Defaults of SubscriberConfig.
const (
	// DefaultWindow holds four flushes of 2,000: one being committed, one being filled, two on their way.
	DefaultWindow = 8192
	// DefaultReadCount keeps one read well under a millisecond of Redis' time.
	DefaultReadCount = 512
	// DefaultBlockTime bounds how long a read waits at Redis, and so how long a stop waits for it.
	DefaultBlockTime = 200 * time.Millisecond
	// DefaultAckCount is the most ids of one XACK.
	DefaultAckCount = 1000
	// DefaultAckDelay is how long the first ack waits for others.
	DefaultAckDelay = 3 * time.Millisecond
	// DefaultMinIdle is how long an entry rests with a silent consumer before others take it.
	DefaultMinIdle = 5 * time.Second
	// DefaultReclaimEvery is how often the dead are looked for.
	DefaultReclaimEvery = time.Second
	// DefaultCloseTimeout is how long a stop waits for the handlers in flight.
	DefaultCloseTimeout = 10 * time.Second
)

// keepAliveParts is how many times within MinIdle an entry in flight is refreshed: a refresh may fail twice.
const keepAliveParts = 4

// ErrConfig is wrapped by every refusal of a configuration; the message names the field.
var ErrConfig = errors.New("consumer: bad configuration")

// Backoff is an exponential back-off with jitter: Initial, doubled each time, up to Max.
type Backoff struct{ Initial, Max time.Duration }

func (b Backoff) start() *backoff.ExponentialBackOff {
	e := backoff.NewExponentialBackOff()
	e.InitialInterval, e.MaxInterval, e.Multiplier = b.Initial, b.Max, 2
	return e
}

func (b Backoff) or(initial, most time.Duration) Backoff {
	return Backoff{Initial: orDefault(b.Initial, initial), Max: orDefault(b.Max, most)}
}

// SubscriberConfig configures a Subscriber. Zero fields take the defaults above.
type SubscriberConfig struct {
	// Client is a client of Redis 7.0 or later: single, sentinel or cluster. Required; never closed here. It may retry
	// by itself or not (MaxRetries).
	Client redis.UniversalClient
	// Group is the consumer group. Required.
	Group string
	// Consumer names this reader within the group. Required. It should survive a restart, so that a new process
	// starts with what the old one left, and no two live processes may share it.
	Consumer string

	Window    int           // most messages of one subscription that are read and not yet acked in Redis
	ReadCount int           // most entries of one read; at most Window
	BlockTime time.Duration // how long a read waits for entries
	AckCount  int           // most ids of one XACK
	AckDelay  time.Duration // longest wait of an ack for others

	// MinIdle is how long an entry must have been silent to be taken from another consumer. Entries in flight here
	// are refreshed four times as often, however long their handlers take.
	MinIdle      time.Duration
	ReclaimEvery time.Duration // how often entries of dead consumers are looked for

	NackBackoff Backoff // of one message between deliveries; 100 ms to 30 s
	ReadBackoff Backoff // of a subscription that can't reach Redis; 50 ms to 5 s

	// CloseTimeout is how long Close, or the cancelling of a subscription, waits for handlers to ack. The contexts of
	// messages are cancelled when it is over, not when it starts.
	CloseTimeout time.Duration

	// Unmarshaller makes messages of entries; the default reads what redisstream.Publisher and Dibs write.
	Unmarshaller redisstream.Unmarshaller
	// Decode, when set, reads the payload of every message before it is handed out; handlers find its value with
	// Decoded, and where it fails the entry goes to the poison stream. It costs less here than in a handler: the Router
	// starts a goroutine per message, and each would grow its stack for the same work (a quarter of all CPU time).
	Decode func(payload []byte) (any, error)
	// PoisonKey names the stream that takes the entries of a topic that can't be handled. The default appends
	// ":poison" to the topic. Nothing trims it.
	PoisonKey func(topic string) string
	// PoisonMax is the most entries of a poison stream; above it entries stay in their own stream, are tried again and
	// again, and fill the window in the end. 0 is no limit.
	PoisonMax int64
	// OnLoss is told of entries that were gone from the stream before they were acked. Redis tells it to whichever
	// consumer looks first, so another may hold such an entry in flight still. It must not block. May be nil.
	OnLoss func(topic string, ids []string)

	Logger  *slog.Logger // required
	Metrics *Metrics     // see NewMetrics; nil counts for nobody
}

// WithDefaults returns a copy with the zero fields filled in.
func (c SubscriberConfig) WithDefaults() SubscriberConfig {
	c.Window = orDefault(c.Window, DefaultWindow)
	c.ReadCount = orDefault(c.ReadCount, min(DefaultReadCount, c.Window))
	c.BlockTime = orDefault(c.BlockTime, DefaultBlockTime)
	c.AckCount = orDefault(c.AckCount, DefaultAckCount)
	c.AckDelay = orDefault(c.AckDelay, DefaultAckDelay)
	c.MinIdle = orDefault(c.MinIdle, DefaultMinIdle)
	c.ReclaimEvery = orDefault(c.ReclaimEvery, DefaultReclaimEvery)
	c.NackBackoff = c.NackBackoff.or(100*time.Millisecond, 30*time.Second)
	c.ReadBackoff = c.ReadBackoff.or(50*time.Millisecond, 5*time.Second)
	c.CloseTimeout = orDefault(c.CloseTimeout, DefaultCloseTimeout)
	if c.Unmarshaller == nil {
		c.Unmarshaller = redisstream.DefaultMarshallerUnmarshaller{}
	}
	if c.PoisonKey == nil {
		c.PoisonKey = func(topic string) string { return topic + ":poison" }
	}
	if c.OnLoss == nil {
		c.OnLoss = func(string, []string) {}
	}
	if c.Metrics == nil {
		c.Metrics = newMetrics()
	}
	return c
}

// Validate returns nil, or ErrConfig wrapped, for a configuration that has its defaults.
func (c *SubscriberConfig) Validate() error {
	switch {
	case c.Client == nil:
		return refuse("Client", "is missing")
	case c.Group == "":
		return refuse("Group", "is missing")
	case c.Consumer == "":
		return refuse("Consumer", "is missing")
	case c.Logger == nil:
		return refuse("Logger", "is missing")
	case c.Window < 1:
		return refuse("Window", "must be at least 1")
	case c.ReadCount < 1 || c.ReadCount > c.Window:
		return refuse("ReadCount", "must be 1 to Window")
	case c.AckCount < 1:
		return refuse("AckCount", "must be at least 1")
	case c.PoisonMax < 0:
		return refuse("PoisonMax", "must not be negative")
	}
	return c.validateTimes()
}

func (c *SubscriberConfig) validateTimes() error {
	for _, f := range []struct {
		name         string
		value, least time.Duration
	}{
		{"BlockTime", c.BlockTime, time.Millisecond},
		{"AckDelay", c.AckDelay, 0},
		{"MinIdle", c.MinIdle, 100 * time.Millisecond},
		{"ReclaimEvery", c.ReclaimEvery, time.Millisecond},
		{"NackBackoff.Initial", c.NackBackoff.Initial, time.Millisecond},
		{"NackBackoff.Max", c.NackBackoff.Max, c.NackBackoff.Initial},
		{"ReadBackoff.Initial", c.ReadBackoff.Initial, time.Millisecond},
		{"ReadBackoff.Max", c.ReadBackoff.Max, c.ReadBackoff.Initial},
		{"CloseTimeout", c.CloseTimeout, 0},
	} {
		if f.value < f.least {
			return refuse(f.name, fmt.Sprintf("must be at least %s", f.least))
		}
	}
	return nil
}

func refuse(field, reason string) error { return fmt.Errorf("%w: %s %s", ErrConfig, field, reason) }

func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
