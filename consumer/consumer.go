package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/metrics"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"dibs/consumer/redisbatch"
	"dibs/internal/sleep"
	"dibs/lua"
)

const (
	// routerGrace is how much longer than the
	// subscriptions the Router waits for a stop.
	routerGrace = 5 * time.Second
	// countParkedEvery is the pause between two
	// counts and replays of parked messages.
	countParkedEvery = 5 * time.Second
)

// ErrPermanent is wrapped by the errors of Permanent.
var ErrPermanent = errors.New("consumer: permanent")

// Permanent marks an error that no retry resolves: the event is parked.
func Permanent(err error) error { return fmt.Errorf("%w: %w", ErrPermanent, err) }

func isPermanent(err error) bool { return errors.Is(err, ErrPermanent) }

// Consumer delivers the events of all claim streams to a handler.
type Consumer struct {
	cfg        Config
	service    *service
	subscriber *redisbatch.Subscriber
	handled    metrics.HandlerPrometheusMetricsMiddleware
	retried    *prometheus.CounterVec
	poisoned   *prometheus.CounterVec
	parked     *prometheus.GaugeVec
	warnings   rate.Sometimes // if a handler's database fails, a whole window fails
}

// New returns a Consumer, or a wrapped ErrConfig. It does not use Redis
// yet. Its metrics stay registered.
func New(cfg Config) (*Consumer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	subscriber, err := redisbatch.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	c := &Consumer{
		cfg: cfg, service: &service{cfg.Handle, cfg.Timeout}, subscriber: subscriber,
		warnings: rate.Sometimes{First: 1, Interval: time.Second},
		handled:  metrics.NewPrometheusMetricsBuilder(cfg.Registerer, "dibs", "consumer").NewRouterMiddleware(),
	}
	counter := func(name, help string) (vec *prometheus.CounterVec) {
		vec, failed := redisbatch.Register(cfg.Registerer, prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: cfg.MetricsPrefix + name, Help: help}, []string{"group", "partition"}))
		err = errors.Join(err, failed)
		return vec
	}
	c.retried = counter("_retried_total", "Events that failed and are tried again after a back-off.")
	c.poisoned = counter("_poisoned_total", "Entries that were parked.")
	var failed error
	c.parked, failed = redisbatch.Register(cfg.Registerer, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: cfg.MetricsPrefix + "_parked", Help: "Entries in the stream of parked messages, as last counted.",
	}, []string{"group", "partition"}))
	return c, errors.Join(err, failed)
}

// Run reads until ctx ends. Then it lets handlers finish within
// CloseTimeout, acknowledges what was committed, and returns nil.
// Errors of Redis do not end it. Call it once.
func (c *Consumer) Run(ctx context.Context) error {
	quiet := map[slog.Level]slog.Level{slog.LevelInfo: slog.LevelDebug}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: c.cfg.CloseTimeout + routerGrace},
		watermill.NewSlogLoggerWithLevelMapping(c.cfg.Logger, quiet))
	if err != nil {
		return fmt.Errorf("consumer: making the router: %w", err)
	}
	router.AddMiddleware(c.handled.Middleware, middleware.CorrelationID, c.decode, c.trace, middleware.Recoverer)
	for n := range c.cfg.Partitions {
		p, err := c.partition(ctx, n)
		if err != nil {
			return fmt.Errorf("consumer: making the poison queue: %w", err)
		}
		router.AddConsumerHandler(lua.StreamKey(n), lua.StreamKey(n), c.subscriber, p.handle)
	}
	tending, stop := context.WithCancel(ctx)
	tended := make(chan struct{})
	go func() {
		defer close(tended)
		c.tendParked(tending)
	}()
	err = errors.Join(router.Run(ctx), c.subscriber.Close())
	stop()
	select {
	case <-tended:
	case <-time.After(c.cfg.CloseTimeout):
		c.cfg.Logger.Warn("a replay did not finish in time: what it has not handled stays parked")
	}
	if err != nil {
		return fmt.Errorf("consumer: running the router: %w", err)
	}
	return nil
}

// tendParked counts parked messages, as other processes replay them,
// too. It replays those that an operator requested.
func (c *Consumer) tendParked(ctx context.Context) {
	lot := NewParkingLot(c.cfg.Client, c.cfg.Partitions, c.cfg.Group)
	for {
		some := false
		for p := range c.cfg.Partitions {
			n, err := c.cfg.Client.XLen(ctx, lua.ParkedKey(p, c.cfg.Group)).Result()
			if err == nil { // the reader logs errors of Redis
				c.parked.WithLabelValues(c.cfg.Group, strconv.Itoa(p)).Set(float64(n))
				some = some || n > 0
			}
		}
		if some {
			if err := lot.ReplayAsked(ctx, c.replay); err != nil && ctx.Err() == nil {
				c.cfg.Logger.Warn("parked messages are not replayed yet, will try again", "error", err)
			}
		}
		if sleep.For(ctx, countParkedEvery) != nil {
			return
		}
	}
}

// replay replays a parked message. left is why it stays parked, or "".
func (c *Consumer) replay(ctx context.Context, id string) (left string, err error) {
	sum, err := NewParkingLot(c.cfg.Client, c.cfg.Partitions, c.cfg.Group).replay(ctx, id, c.service)
	switch {
	case errors.Is(err, ErrNoParked): // another process replayed or discarded it
		return "", nil
	case err == nil && len(sum.Left) > 0:
		left = sum.Left[0].Reason
	}
	return left, err
}
