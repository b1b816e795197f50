package claimed

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"dibs/api/workers"
)

const (
	lookupTimeout  = 2 * time.Second
	resolveTimeout = 5 * time.Second // of a redeem or a release, beside the wait for the claim's row
	// resolveWait is how long a redeem or a release waits for the row of a claim that was answered a moment ago.
	resolveWait = 2 * time.Second
)

// Config is what the routes of claims that were made need.
type Config struct {
	Claims   Claims
	Resolver Resolver
	Streams  Streams
	Workers  *workers.Group
	// Changed is called for each campaign that got units back.
	Changed func(campaignID string)
	// HoldOf is the hold_for of a campaign, in milliseconds. Errors: models.ErrNotFound, and those of a Redis and a MySQL that are away.
	HoldOf func(ctx context.Context, campaignID string) (ms int64, err error)

	CallTimeout time.Duration // of reading the unsynced claims
	Logger      *slog.Logger
	Registerer  prometheus.Registerer
}

// Routes answers the routes of claims that were made.
type Routes struct {
	cfg         Config
	resolveWait time.Duration
	unsynced    *unsynced
	metrics     *metrics
	logSome     rate.Sometimes // a Redis or MySQL that is away fails every request
}

// New makes Routes.
func New(cfg Config) *Routes {
	m := newMetrics(cfg.Registerer)
	return &Routes{
		cfg: cfg, resolveWait: resolveWait, unsynced: newUnsynced(&cfg, m.unsynced), metrics: m, logSome: rate.Sometimes{Interval: time.Second},
	}
}
