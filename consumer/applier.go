package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/metrics"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"dibs/consumer/redisbatch"
	"dibs/internal/pulse"
	"dibs/internal/tracing"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
)

const (
	defaultReadCount   = 1000
	defaultBlockTime   = 500 * time.Millisecond
	defaultGatherPause = 2 * time.Millisecond
)

// Log applies the claim streams and keeps their offsets: the writer.
type Log interface {
	// Begin starts the next turn of a partition's
	// reader, whose first read follows at.
	Begin(ctx context.Context, partition int) (turn int64, at event.Offset, err error)
	// Free waits until entries fit, and returns how many do. It fails
	// when the turn or ctx ends.
	Free(ctx context.Context, partition int, turn int64) (int, error)
	// Add adds the next read. It fails when the turn is over.
	Add(read *event.Read) error
	// Positions returns recent offsets, newest first.
	Positions(ctx context.Context, partition int) ([]event.Offset, error)
	// Move sets offset, generation and state of a partition by
	// compare-and-set.
	Move(ctx context.Context, partition int, from, to event.Offset) (moved bool, err error)
}

// Leases decide which partitions this process reads.
type Leases interface {
	// Await waits for the lease of a partition. The returned context
	// ends with the lease or ctx. The error is the cause of ctx.
	Await(ctx context.Context, partition int) (context.Context, error)
}

// ApplierConfig configures an Applier.
// Client, Name, Log, Logger and Registerer are required.
type ApplierConfig struct {
	Client     redis.UniversalClient
	Partitions int    // number of claim streams; 0 is 1
	Name       string // of this process, in the group
	Log        Log
	Leases     Leases        // nil: this process reads all partitions
	Settle     time.Duration // after a loss, for processes to report what they saw of lots

	ReadCount    int           // entries of a read
	BlockTime    time.Duration // longest wait of a read for entries, and of a stop for a read
	GatherPause  time.Duration // after a wait, so that a read gets more entries
	CloseTimeout time.Duration

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Heartbeat  *pulse.Heartbeat // beats after each read; may be nil
	Tracer     *tracing.Tracer  // nil: no traces
}

// WithDefaults returns a copy with defaults for zero fields.
func (c ApplierConfig) WithDefaults() ApplierConfig {
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.ReadCount = cmp.Or(c.ReadCount, defaultReadCount)
	c.BlockTime = cmp.Or(c.BlockTime, defaultBlockTime)
	c.GatherPause = cmp.Or(c.GatherPause, defaultGatherPause)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, redisbatch.DefaultCloseTimeout)
	return c
}

// Validate returns nil, or a wrapped ErrConfig. The defaults must be set.
func (c *ApplierConfig) Validate() error {
	switch {
	case c.Client == nil:
		return redisbatch.Refuse("Client", "is missing")
	case c.Log == nil:
		return redisbatch.Refuse("Log", "is missing")
	case c.Name == "":
		return redisbatch.Refuse("Name", "is missing")
	case c.Logger == nil:
		return redisbatch.Refuse("Logger", "is missing")
	case c.Registerer == nil:
		return redisbatch.Refuse("Registerer", "is missing")
	case c.Partitions < 1 || c.Partitions > lua.PartitionsMax:
		return redisbatch.Refuse("Partitions", fmt.Sprintf("must be 1 to %d", lua.PartitionsMax))
	}
	return nil
}

// Applier reads the claim streams in group syncer and
// passes each read to a Log. Each partition has a handler
// on watermill's Router and one reader at a time.
//
// A message is one decoded read, with the turn of its reader. An
// ack means that the Log has it, not yet MySQL: the Log keeps
// the offset. A nack ends the turn, and the next one starts at
// MySQL's offset. So nothing is acknowledged or pending in
// Redis. The group's position is the reader's, for XINFO.
type Applier struct {
	cfg     ApplierConfig
	scripts *lua.Scripts
	handled metrics.HandlerPrometheusMetricsMiddleware
	metrics *applierMetrics
}

// NewApplier returns an Applier, or a wrapped
// ErrConfig. It does not use Redis yet.
func NewApplier(cfg ApplierConfig) (*Applier, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m, err := newApplierMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	scripts, err := lua.New(cfg.Client, lua.Options{Partitions: cfg.Partitions})
	if err != nil {
		return nil, err
	}
	return &Applier{
		cfg: cfg, metrics: m, scripts: scripts,
		handled: metrics.NewPrometheusMetricsBuilder(cfg.Registerer, "dibs", "consumer").NewRouterMiddleware(),
	}, nil
}

// Run reads until ctx ends and returns nil, despite
// errors of Redis or the Log. Call it once.
func (a *Applier) Run(ctx context.Context) error {
	quiet := map[slog.Level]slog.Level{slog.LevelInfo: slog.LevelDebug}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: a.cfg.CloseTimeout},
		watermill.NewSlogLoggerWithLevelMapping(a.cfg.Logger, quiet))
	if err != nil {
		return fmt.Errorf("consumer: making the router: %w", err)
	}
	router.AddMiddleware(a.handled.Middleware, a.trace, middleware.Recoverer)
	subscriber := &offsetSubscriber{Applier: a}
	for p := range a.cfg.Partitions {
		router.AddConsumerHandler(lua.StreamKey(p), lua.StreamKey(p), subscriber, a.handle)
	}
	if err := errors.Join(router.Run(ctx), subscriber.Close()); err != nil {
		return fmt.Errorf("consumer: running the router: %w", err)
	}
	return nil
}

type streamReadKey struct{}

func (a *Applier) handle(msg *message.Message) error {
	read, _ := msg.Context().Value(streamReadKey{}).(*event.Read)
	return a.cfg.Log.Add(read)
}

func (a *Applier) trace(h message.HandlerFunc) message.HandlerFunc {
	return traced(a.cfg.Tracer, models.GroupSyncer, h, func(msg *message.Message) []event.Raw {
		read, _ := msg.Context().Value(streamReadKey{}).(*event.Read)
		return read.Events
	})
}

type applierMetrics struct{ read, errors, lost *prometheus.CounterVec }

func newApplierMetrics(reg prometheus.Registerer) (*applierMetrics, error) {
	var failed []error
	counter := func(name, help string) *prometheus.CounterVec {
		vec, err := redisbatch.Register(reg,
			prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"partition"}))
		failed = append(failed, err)
		return vec
	}
	m := &applierMetrics{
		read:   counter("dibs_applier_read_total", "Entries of the claim streams that were read to be applied to MySQL."),
		errors: counter("dibs_applier_errors_total", "Reads of the claim streams, or of their offsets, that failed and are tried again."),
		lost:   counter("dibs_applier_rewinds_total", "Times that Redis lacked the entry that MySQL had applied last."),
	}
	return m, errors.Join(failed...)
}
