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
	lookupTimeout = 2 * time.Second
	// of a decision, without the wait for the claim's row.
	resolveTimeout = 5 * time.Second
	// for the row of a claim that was answered a moment ago.
	appliedWait = time.Second
)

// Config is what these routes need.
type Config struct {
	Claims   Claims
	Resolver Resolver
	Applied  Applied
	Workers  *workers.Group
	// Changed is called for each campaign that got units back.
	Changed func(campaignID string)

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Routes answers the routes of existing claims.
type Routes struct {
	cfg     Config
	applied refresher[struct{}]
	metrics *metrics
	logSome rate.Sometimes // an unreachable Redis or MySQL fails every request
}

// New makes Routes.
func New(cfg Config) *Routes {
	s := &Routes{cfg: cfg, metrics: newMetrics(cfg.Registerer), logSome: rate.Sometimes{Interval: time.Second}}
	s.applied = refresher[struct{}]{group: cfg.Workers, refresh: func() (struct{}, error) {
		ctx, cancel := context.WithTimeout(context.Background(), appliedWait)
		defer cancel()
		return struct{}{}, cfg.Applied.AwaitApplied(ctx)
	}}
	return s
}
