package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"dibs/internal/pulse"
	"dibs/internal/tracing"
	"dibs/lua"
)

// Defaults of Config and ServiceConfig.
const (
	// DefaultWindow holds four flushes of 2,000: one being committed, one being filled, two on their way.
	DefaultWindow = 8192
	// DefaultCloseTimeout is how long a stop waits for the handlers in flight.
	DefaultCloseTimeout = 10 * time.Second
	// DefaultHandleTimeout bounds one attempt of a Service, so that a handler that hangs does not hold its message for ever.
	DefaultHandleTimeout = time.Minute
	// DefaultParkedMax is more than people look through, and some 50 MB of Redis.
	DefaultParkedMax = 100_000
)

// ErrConfig is wrapped by every refusal of a configuration; the message names the field.
var ErrConfig = errors.New("consumer: bad configuration")

// Backoff is an exponential back-off with jitter: Initial, doubled each time, up to Max.
type Backoff struct{ Initial, Max time.Duration }

func (b Backoff) start() *backoff.ExponentialBackOff {
	e := backoff.NewExponentialBackOff()
	e.InitialInterval, e.MaxInterval, e.Multiplier = b.Initial, b.Max, 2
	return e
}

// withDefaults fills in the back-off of one message between deliveries.
func (b Backoff) withDefaults() Backoff {
	return Backoff{Initial: cmp.Or(b.Initial, 100*time.Millisecond), Max: cmp.Or(b.Max, 30*time.Second)}
}

// subscriberConfig is the part of Config and ServiceConfig that concerns reading.
type subscriberConfig struct {
	client       redis.UniversalClient
	partitions   int
	group        string
	name         string                                         // of this process within the group
	replicated   func(ctx context.Context, stream string) error // see Config
	window       int
	closeTimeout time.Duration
	nackBackoff  Backoff
	// decode has the event of an entry read before it is handed out; an entry that holds none goes to the poison stream. It costs less
	// here than in a handler: the Router starts a goroutine per message, and each would grow its stack for the same work (a quarter
	// of all CPU time).
	decode bool
	// inBatches makes one message of all entries of a read. Its handler settles each entry by itself, and what it refuses comes again
	// alone. A goroutine, a message and a context for each entry are half of what a flush costs.
	inBatches bool
	// poisonKey names the stream that takes the entries of a claim stream that cannot be handled. Nothing trims it. When it holds
	// poisonMax entries, the next ones stay in the claim stream, are tried again and again, and fill the window in the end.
	poisonKey  func(stream string) string
	poisonMax  int64
	log        *slog.Logger
	registerer prometheus.Registerer
	pulse      *pulse.Pulse
	tracer     *tracing.Tracer

	timing
}

// timing is how often, how long and how much a subscription asks Redis. Only tests change it.
type timing struct {
	readCount    int           // most entries of one read; one read takes well under a millisecond of Redis' time
	blockTime    time.Duration // how long a read waits for entries at Redis, and so how long a stop waits for the read
	ackDelay     time.Duration // how long the first acknowledgement of an XACK waits for others
	minIdle      time.Duration // how long an entry is pending with a silent consumer before another one claims it
	reclaimEvery time.Duration // how often entries of silent consumers are looked for
	readBackoff  Backoff       // of a subscription that cannot reach Redis
}

// readWaitMax is the middle of the longest wait for a Redis that is away: jitter makes it half a second at most, so that events flow
// again soon after a failover.
const readWaitMax = 333 * time.Millisecond

func defaultTiming() timing {
	return timing{
		readCount: 512, blockTime: 200 * time.Millisecond, ackDelay: 3 * time.Millisecond, minIdle: 5 * time.Second,
		reclaimEvery: time.Second, readBackoff: Backoff{Initial: 50 * time.Millisecond, Max: readWaitMax},
	}
}

// validate checks a subscriberConfig under the field names of Config and ServiceConfig.
func (c *subscriberConfig) validate() error {
	switch {
	case c.client == nil:
		return refuse("Client", "is missing")
	case c.partitions < 1 || c.partitions > lua.PartitionsMax:
		return refuse("Partitions", fmt.Sprintf("must be 1 to %d", lua.PartitionsMax))
	case c.group == "":
		return refuse("Group", "is missing")
	case c.name == "":
		return refuse("Name", "is missing")
	case c.window < 1:
		return refuse("Window", "must be at least 1")
	case c.closeTimeout < 0:
		return refuse("CloseTimeout", "must not be negative")
	case c.nackBackoff.Initial < time.Millisecond:
		return refuse("Backoff.Initial", "must be at least 1ms")
	case c.nackBackoff.Max < c.nackBackoff.Initial:
		return refuse("Backoff.Max", "must be at least Backoff.Initial")
	case c.log == nil:
		return refuse("Logger", "is missing")
	case c.registerer == nil:
		return refuse("Registerer", "is missing")
	}
	return nil
}

func refuse(field, reason string) error { return fmt.Errorf("%w: %s %s", ErrConfig, field, reason) }

// streamKeys maps claim streams to another key of their partition.
func streamKeys(partitions int, key func(partition int) string) func(stream string) string {
	keys := make(map[string]string, partitions)
	for p := range partitions {
		keys[lua.StreamKey(p)] = key(p)
	}
	return func(stream string) string { return keys[stream] }
}
