package consumer

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/consumer/redisbatch"
	"dibs/internal/pulse"
	"dibs/internal/tracing"
	"dibs/lua"
)

const (
	// DefaultHandleTimeout bounds one attempt,
	// so that a stalled handler is retried.
	DefaultHandleTimeout = time.Minute
	// DefaultParkedMax is more than operators
	// can handle: some 50 MB of Redis.
	DefaultParkedMax = 100_000
)

// ErrConfig is wrapped by errors about a configuration, which name the field.
var ErrConfig = redisbatch.ErrConfig

// Backoff is exponential with jitter: Initial, doubled each time, up to Max.
type Backoff struct{ Initial, Max time.Duration }

// Config configures a Consumer. Of redisbatch.Config it requires
// Client, Name, Logger and Registerer. Window is per partition.
type Config struct {
	redisbatch.Config

	Partitions int // number of claim streams, DIBS_PARTITIONS; 0 is 1

	// Handle is required. Group is the service's
	// own; Run creates it, which registers it.
	Handle HandleFunc

	// Attempts is how often a process tries an event before it parks it. 0 is
	// no bound: right for a handler whose database will recover.
	Attempts int
	Backoff  Backoff       // between the attempts at an event; 100 ms to 30 s
	Timeout  time.Duration // of an attempt; 0 is DefaultHandleTimeout
	// ParkedMax bounds the parked messages of a
	// partition; 0 is DefaultParkedMax. Beyond it
	// events stay in the claim stream and are retried.
	ParkedMax int64

	// ReadAhead delivers events before MySQL has them. Redis may lose
	// such an event after it was handled. Only claims.dropped and
	// claims.given_up report that.
	ReadAhead bool

	Heartbeat *pulse.Heartbeat // beats after each read; may be nil
	Tracer    *tracing.Tracer  // nil: no traces
}

// readDeadline bounds a read and its wait for the window in normal operation.
const readDeadline = 30 * time.Second

// WithDefaults returns a copy with defaults for zero fields.
func (c Config) WithDefaults() Config {
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.Backoff.Initial = cmp.Or(c.Backoff.Initial, 100*time.Millisecond)
	c.Backoff.Max = cmp.Or(c.Backoff.Max, 30*time.Second)
	c.Timeout = cmp.Or(c.Timeout, DefaultHandleTimeout)
	c.ParkedMax = cmp.Or(c.ParkedMax, DefaultParkedMax)
	c.NackDelay = c.Backoff.Initial
	c.MetricsPrefix = "dibs_consumer"
	c.Partition = partitionOf
	if !c.ReadAhead {
		c.IsReady = IsApplied(c.Client)
	}
	c.OnRead = func(stream string) { c.Heartbeat.Beat("the reader of "+stream, readDeadline) }
	c.Config = c.Config.WithDefaults()
	return c
}

// Validate returns nil, or a wrapped ErrConfig. The defaults must be set.
func (c *Config) Validate() error {
	switch {
	case c.Partitions < 1 || c.Partitions > lua.PartitionsMax:
		return redisbatch.Refuse("Partitions", fmt.Sprintf("must be 1 to %d", lua.PartitionsMax))
	case c.Handle == nil:
		return redisbatch.Refuse("Handle", "is missing")
	case c.Attempts < 0:
		return redisbatch.Refuse("Attempts", "must not be negative")
	case c.Timeout < time.Millisecond:
		return redisbatch.Refuse("Timeout", "must be at least 1ms")
	case c.ParkedMax < 1:
		return redisbatch.Refuse("ParkedMax", "must be at least 1")
	case c.Backoff.Initial < time.Millisecond || c.Backoff.Max < c.Backoff.Initial:
		return redisbatch.Refuse("Backoff.Initial and Backoff.Max", "must be at least 1ms, and in this order")
	}
	return c.Config.Validate()
}

func partitionOf(stream string) string {
	return strings.TrimSuffix(strings.TrimPrefix(stream, "dibs:{p"), "}:claims")
}

// IsApplied returns an IsReady of redisbatch.Config:
// entries wait until MySQL has them.
func IsApplied(client redis.UniversalClient) func(ctx context.Context, stream, id string) bool {
	return func(ctx context.Context, stream, id string) bool {
		partition, err := strconv.Atoi(partitionOf(stream))
		upto, malformed := lua.ParseEntryID(id)
		if err != nil || malformed != nil {
			return false
		}
		is, err := lua.HasApplied(ctx, client, partition, upto)
		return is && err == nil // the reader's next read reports the error
	}
}

// CheckPartitions returns a wrapped ErrConfig if a claim stream beyond
// this number of partitions has or had events. They would stay unread.
func CheckPartitions(ctx context.Context, client redis.UniversalClient, partitions int) error {
	pipe := client.Pipeline()
	var streams []*redis.XInfoStreamCmd
	for n := partitions; n < lua.PartitionsMax; n++ {
		streams = append(streams, pipe.XInfoStream(ctx, lua.StreamKey(n)))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, stream := range streams {
		info, err := stream.Result()
		switch {
		case err == nil && (info.Length > 0 || info.LastGeneratedID != "" && info.LastGeneratedID != "0-0"): // embedded: ""
			reason := fmt.Sprintf("is %d, but there are events in %s", partitions, lua.StreamKey(partitions+i))
			return redisbatch.Refuse("Partitions", reason)
		case err != nil && !strings.Contains(err.Error(), "no such key"):
			return fmt.Errorf("consumer: looking for claim streams: %w", err)
		}
	}
	return nil
}
