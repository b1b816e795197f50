package redisbatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

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

// ErrConfig is wrapped by errors about a configuration, which name the field.
var ErrConfig = errors.New("bad configuration")

// Config configures a Subscriber. Optional zero fields get their defaults.
type Config struct {
	// required: Redis 7.0 or later, single or cluster; never closed here
	Client redis.UniversalClient
	Group  string // required: the consumer group
	// Name of this process in its group. Required. It should survive a
	// restart, so that a new process takes over from the old one. Live
	// processes must not share it.
	Name string

	Window       int           // bound of unacknowledged entries of a stream
	ReadCount    int           // entries of a read
	CloseTimeout time.Duration // of a stop, for messages in flight; then their contexts end
	NackDelay    time.Duration // before the next delivery of a nacked message
	BlockTime    time.Duration // longest wait of a read for entries, and of a stop for a read
	AckDelay     time.Duration // wait of an acknowledgement for others
	MinIdle      time.Duration // idle time after which another consumer claims an entry
	ReclaimEvery time.Duration // between two searches for entries of silent consumers

	// IsReady reports whether entries of a stream up to an id may be
	// delivered. While it is false it is polled. What Redis has lost by then
	// is not delivered. nil: always.
	IsReady func(ctx context.Context, stream, id string) bool
	OnRead  func(stream string) // called at the start and after each successful read

	Logger        *slog.Logger          // required
	Registerer    prometheus.Registerer // required; subscribers may share it and the metrics
	MetricsPrefix string                // of the metrics' names; default "redisbatch"
	// value of the label partition; default the stream's name
	Partition func(stream string) string
}

// WithDefaults returns a copy with defaults for zero fields.
func (c Config) WithDefaults() Config {
	if c.Partition == nil {
		c.Partition = func(stream string) string { return stream }
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

// Validate returns nil, or a wrapped ErrConfig. The defaults must be set.
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

// Refuse returns a wrapped ErrConfig, also for packages that embed Config.
func Refuse(field, reason string) error { return fmt.Errorf("%w: %s %s", ErrConfig, field, reason) }
