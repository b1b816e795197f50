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

// Defaults of Config.
const (
	// DefaultHandleTimeout bounds one attempt of a handler, so that one that hangs does not hold its message for ever.
	DefaultHandleTimeout = time.Minute
	// DefaultParkedMax is more than people can work through, and some 50 MB of Redis.
	DefaultParkedMax = 100_000
)

// ErrConfig is wrapped by every refusal of a configuration; the message names the field.
var ErrConfig = redisbatch.ErrConfig

// Backoff is an exponential back-off with jitter: Initial, doubled each time, up to Max.
type Backoff struct{ Initial, Max time.Duration }

// Config configures a Consumer. Of redisbatch.Config it requires Client, Name, Logger and Registerer. Its Window is for one partition.
type Config struct {
	redisbatch.Config

	Partitions int // number of claim streams, DIBS_PARTITIONS; 0 is 1

	// Handle is required. Group is a consumer group of the service's own; it is registered as soon as Run has created it.
	Handle HandleFunc

	// Attempts is how often a process hands an event to Handle before it parks it. 0 is no bound, which is right where the handler's
	// database comes back some day.
	Attempts int
	Backoff  Backoff       // between the attempts at an event; 100 ms to 30 s
	Timeout  time.Duration // of one attempt of Handle; 0 is DefaultHandleTimeout
	// ParkedMax is the most parked messages of a partition; 0 is DefaultParkedMax. When so many are parked, further ones stay in the
	// claim stream and are tried again and again, until parked messages are replayed or discarded.
	ParkedMax int64

	// ReadAhead hands out events that MySQL does not have yet. Redis may lose them: then a claim that was handled never was, and only
	// claims.dropped and claims.given_up tell.
	ReadAhead bool

	Heartbeat *pulse.Heartbeat // has a beat each time that a stream was read; may be nil
	Tracer    *tracing.Tracer  // nil: no traces
}

// readDeadline is how long a read may take, with the wait for capacity in the window: what is there is committed by then, if all is well.
const readDeadline = 30 * time.Second

// WithDefaults returns a copy with the zero fields filled in.
func (c Config) WithDefaults() Config {
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.Backoff.Initial = cmp.Or(c.Backoff.Initial, 100*time.Millisecond)
	c.Backoff.Max = cmp.Or(c.Backoff.Max, 30*time.Second)
	c.Timeout = cmp.Or(c.Timeout, DefaultHandleTimeout)
	c.ParkedMax = cmp.Or(c.ParkedMax, DefaultParkedMax)
	c.Batches = true
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

// Validate returns nil, or ErrConfig wrapped, for a configuration that has its defaults.
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

// partitionOf is the partition of a claim stream.
func partitionOf(stream string) string {
	return strings.TrimSuffix(strings.TrimPrefix(stream, "dibs:{p"), "}:claims")
}

// IsApplied is for redisbatch.Config.IsReady: entries of a claim stream are handed out once MySQL has applied them.
func IsApplied(client redis.UniversalClient) func(ctx context.Context, stream, id string) bool {
	return func(ctx context.Context, stream, id string) bool {
		partition, err := strconv.Atoi(partitionOf(stream))
		upto, malformed := lua.ParseEntryID(id)
		if err != nil || malformed != nil {
			return false
		}
		is, err := lua.HasApplied(ctx, client, partition, upto)
		return is && err == nil // the reader's next read fails, too, and logs it
	}
}

// CheckPartitions refuses, with ErrConfig wrapped, a number of claim streams that leaves events unread: a stream beyond them has, or
// had, some.
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
		case err == nil && (info.Length > 0 || info.LastGeneratedID != "" && info.LastGeneratedID != "0-0"): // embedded Redis: no last id
			return redisbatch.Refuse("Partitions", fmt.Sprintf("is %d, but there are events in %s", partitions, lua.StreamKey(partitions+i)))
		case err != nil && !strings.Contains(err.Error(), "no such key"):
			return fmt.Errorf("consumer: looking for claim streams: %w", err)
		}
	}
	return nil
}
