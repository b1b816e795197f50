package redisbatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// Defaults of Config.
const (
	DefaultWindow       = 8192
	DefaultReadCount    = 512 // one read takes well under a millisecond of Redis' time
	DefaultCloseTimeout = 10 * time.Second
	DefaultNackDelay    = 100 * time.Millisecond
	DefaultBlockTime    = 200 * time.Millisecond
	DefaultAckDelay     = 3 * time.Millisecond
	DefaultMinIdle      = 5 * time.Second
	DefaultReclaimEvery = time.Second
)

// ErrConfig is wrapped by every refusal of a configuration; the message names the field.
var ErrConfig = errors.New("bad configuration")

// Config configures a Subscriber. Zero fields that are not required get their defaults.
type Config struct {
	Client redis.UniversalClient // required: Redis 7.0 or later, single or cluster; never closed here
	Group  string                // required: the consumer group
	// Name is this process within its group. Required. It should survive a restart, so that a new process starts with what the old
	// one left. No two live processes may share it.
	Name string

	Batches      bool                     // one message for all entries of a read, see Marshal; otherwise a message per entry
	Unmarshaller redisstream.Unmarshaller // of an entry, unless Batches; default redisstream.DefaultMarshallerUnmarshaller

	Window       int           // most entries of a stream that are read and not yet acknowledged in Redis
	ReadCount    int           // most entries of one read
	CloseTimeout time.Duration // how long a stop waits for messages in flight; their contexts end when it is over
	NackDelay    time.Duration // before a message that was nacked is delivered again
	BlockTime    time.Duration // how long a read waits for entries at Redis, and so how long a stop waits for the read
	AckDelay     time.Duration // how long the first acknowledgement of an XACK waits for others
	MinIdle      time.Duration // how long an entry is pending with a silent consumer before another one claims it
	ReclaimEvery time.Duration // how often entries of silent consumers are searched

	// IsReady reports whether the entries of a stream up to one of an id may be handed out. They wait until they may, while it is asked
	// again and again. nil: they may.
	IsReady func(ctx context.Context, stream, id string) bool
	OnRead  func(stream string) // called when a subscription starts, and after each successful read; nil: not called

	Logger        *slog.Logger               // required
	Registerer    prometheus.Registerer      // required; subscribers that share it share their metrics
	MetricsPrefix string                     // of the metrics' names; default "redisbatch"
	Partition     func(stream string) string // value of the label partition; default the stream's name
}

// WithDefaults returns a copy with the zero fields filled in.
func (c Config) WithDefaults() Config {
	if c.Unmarshaller == nil {
		c.Unmarshaller = redisstream.DefaultMarshallerUnmarshaller{}
	}
	if c.Partition == nil {
		c.Partition = func(stream string) string { return stream }
	}
	if c.IsReady == nil {
		c.IsReady = func(context.Context, string, string) bool { return true }
	}
	if c.OnRead == nil {
		c.OnRead = func(string) {}
	}
	c.Window = cmp.Or(c.Window, DefaultWindow)
	c.ReadCount = cmp.Or(c.ReadCount, DefaultReadCount)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, DefaultCloseTimeout)
	c.NackDelay = cmp.Or(c.NackDelay, DefaultNackDelay)
	c.BlockTime = cmp.Or(c.BlockTime, DefaultBlockTime)
	c.AckDelay = cmp.Or(c.AckDelay, DefaultAckDelay)
	c.MinIdle = cmp.Or(c.MinIdle, DefaultMinIdle)
	c.ReclaimEvery = cmp.Or(c.ReclaimEvery, DefaultReclaimEvery)
	c.MetricsPrefix = cmp.Or(c.MetricsPrefix, "redisbatch")
	return c
}

// Validate returns nil, or ErrConfig wrapped, for a configuration that has its defaults.
func (c *Config) Validate() error {
	switch {
	case c.Client == nil:
		return Refuse("Client", "is missing")
	case c.Group == "":
		return Refuse("Group", "is missing")
	case c.Name == "":
		return Refuse("Name", "is missing")
	case min(c.Window, c.ReadCount) < 1:
		return Refuse("Window and ReadCount", "must be at least 1")
	case c.CloseTimeout < 0:
		return Refuse("CloseTimeout", "must not be negative")
	case min(c.NackDelay, c.BlockTime, c.AckDelay, c.ReclaimEvery) < time.Millisecond:
		return Refuse("NackDelay, BlockTime, AckDelay and ReclaimEvery", "must be at least 1ms")
	case c.MinIdle < 100*time.Millisecond:
		return Refuse("MinIdle", "must be at least 100ms")
	case c.Logger == nil:
		return Refuse("Logger", "is missing")
	case c.Registerer == nil:
		return Refuse("Registerer", "is missing")
	}
	return nil
}

// Refuse returns ErrConfig wrapped, for packages whose configuration embeds Config.
func Refuse(field, reason string) error { return fmt.Errorf("%w: %s %s", ErrConfig, field, reason) }
