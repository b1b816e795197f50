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
)

const (
	defaultReadCount   = 1000
	defaultBlockTime   = 500 * time.Millisecond
	defaultGatherPause = 2 * time.Millisecond
)

// Log is what applies the claim streams and keeps their offsets: the writer.
type Log interface {
	// Begin begins the next turn of the reader of a partition. The first read follows at.
	Begin(ctx context.Context, partition int) (turn int64, at models.Offset, err error)
	// Room waits until the log takes entries, and returns how many. An error says that the turn is over, or that ctx has ended.
	Room(ctx context.Context, partition int, turn int64) (int, error)
	// Add takes a read that follows the one before. An error says that the turn is over.
	Add(read *models.StreamRead) error
	// Positions are where the offset was lately, newest first.
	Positions(ctx context.Context, partition int) ([]models.Offset, error)
	// Move moves the offset, the generation and the state of a partition, and reports whether it did: else somebody else moved them.
	Move(ctx context.Context, partition int, from, to models.Offset) (moved bool, err error)
}

// Leases say which partitions this process reads.
type Leases interface {
	// Await waits until this process is to read a partition. The context that it returns ends when another process may read
	// it, or ctx ends. The error is why ctx ended.
	Await(ctx context.Context, partition int) (context.Context, error)
}

// ApplierConfig configures an Applier. Client, Name, Log, Logger and Registerer are required.
type ApplierConfig struct {
	Client     redis.UniversalClient
	Partitions int    // number of claim streams; 0 is 1
	Name       string // of this process, in the group
	Log        Log
	Leases     Leases        // nil: this process reads all partitions
	Settle     time.Duration // after Redis lost data: how long processes may take to report what they saw of lots

	ReadCount    int           // most entries of one read
	BlockTime    time.Duration // how long a read waits for entries, and so how long a stop waits for the read
	GatherPause  time.Duration // after a wait: what comes together is read together
	CloseTimeout time.Duration

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Heartbeat  *pulse.Heartbeat // has a beat each time that a stream was read; may be nil
	Tracer     *tracing.Tracer  // nil: no traces
}

// WithDefaults returns a copy with the zero fields filled in.
func (c ApplierConfig) WithDefaults() ApplierConfig {
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.ReadCount = cmp.Or(c.ReadCount, defaultReadCount)
	c.BlockTime = cmp.Or(c.BlockTime, defaultBlockTime)
	c.GatherPause = cmp.Or(c.GatherPause, defaultGatherPause)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, redisbatch.DefaultCloseTimeout)
	return c
}

// Validate returns nil, or ErrConfig wrapped, for a configuration that has its defaults.
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

// Applier reads the claim streams, as members of group syncer, and hands what it reads to a Log. Each partition has a handler
// on watermill's Router and one reader at a time.
//
// A message carries one read, decoded, with the turn of its reader. Its ack says that the Log has added it, which is not yet
// that MySQL has it: the Log keeps the offset. A nack ends the turn, and the next one begins at MySQL's offset. So there are
// no acknowledgements in Redis and no pending entries; the group's position is that of the reader, for people to see.
type Applier struct {
	cfg     ApplierConfig
	scripts *lua.Scripts
	handled metrics.HandlerPrometheusMetricsMiddleware
	metrics *applierMetrics
}

// NewApplier returns an Applier, or ErrConfig wrapped. It does not talk to Redis yet.
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

// Run reads until ctx ends and then returns nil. It may be called once. Errors of Redis and of the Log do not end it.
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
	read, _ := msg.Context().Value(streamReadKey{}).(*models.StreamRead)
	return a.cfg.Log.Add(read)
}

// trace starts a span for each traced event of a message.
func (a *Applier) trace(h message.HandlerFunc) message.HandlerFunc {
	return traced(a.cfg.Tracer, models.GroupSyncer, h, func(msg *message.Message) []models.RawEvent {
		read, _ := msg.Context().Value(streamReadKey{}).(*models.StreamRead)
		return read.Events
	})
}

type applierMetrics struct{ read, errors, lost *prometheus.CounterVec }

func newApplierMetrics(reg prometheus.Registerer) (*applierMetrics, error) {
	var failed []error
	counter := func(name, help string) *prometheus.CounterVec {
		vec, err := redisbatch.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"partition"}))
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
