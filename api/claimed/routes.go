package claimed

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"dibs/api/workers"
)

// claimedConfig is what the routes of claims that were made need; all of it.
type Config struct {
	Claims   Claims
	Resolver Resolver
	Streams  Streams
	Workers  *workers.Workers
	// Changed is told of each campaign that got units back.
	Changed func(campaignID string)
	// HoldOf tells the hold_for of a campaign, in milliseconds.
	HoldOf func(ctx context.Context, campaignID string) (ms int64, err error)

	Group         string
	LookupTimeout time.Duration
	AdminTimeout  time.Duration
	CallTimeout   time.Duration
	ResolveWait   time.Duration
	TailMax       int
	TailIdle      time.Duration

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// claimedRoutes answers the routes of claims that were made: look-ups, redeem and release.
type Routes struct {
	cfg      Config
	log      *slog.Logger
	tail     *tail
	metrics  *claimedMetrics
	complain rate.Sometimes // bounds what a Redis or MySQL that is away writes into the log
}

func New(cfg Config) (*Routes, error) {
	metrics, err := newClaimedMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	return &Routes{
		cfg: cfg, log: cfg.Logger, tail: newTail(cfg, metrics.unsynced), metrics: metrics, complain: rate.Sometimes{Interval: time.Second},
	}, nil
}
