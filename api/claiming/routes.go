package claiming

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"dibs/api/attempts"
	"dibs/api/rows"
	"dibs/api/workers"
	"dibs/internal/tracing"
	"dibs/models"
)

// Config is what the claim routes need. The API's own Config documents
// the settings and validates them.
type Config struct {
	Claimer   Claimer
	States    StateReader
	Loader    Loader
	Campaigns Campaigns
	Mover     Mover
	Rows      rows.Reader // nil: claims are answered without waiting for MySQL
	Workers   *workers.Group

	ClaimsPerCall, ClaimsInFlight int
	QueueWait, CallTimeout        time.Duration
	UserRate                      float64
	SubjectSecret                 string
	Attempts                      attempts.Counter // nil: UserRate is per process

	Tracer     *tracing.Tracer // nil: no traces
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Clock      func() time.Time
}

// Routes answers the claim routes.
type Routes struct {
	cfg     Config
	lanes   *lanes
	refills singleflight.Group
	users   *attempts.Limiter
	rows    *rows.Waiter
	metrics *metrics
	logSome rate.Sometimes // an unreachable Redis or MySQL fails every request
}

// New makes Routes.
func New(cfg Config) *Routes {
	m := newMetrics(cfg.Registerer)
	return &Routes{
		cfg: cfg, lanes: newLanes(cfg, m), metrics: m, logSome: rate.Sometimes{Interval: time.Second},
		users: attempts.New(attempts.Config{PerSecond: cfg.UserRate, Counter: cfg.Attempts, Workers: cfg.Workers, Clock: cfg.Clock}),
		rows: rows.New(rows.Config{
			Reader: cfg.Rows, Workers: cfg.Workers, Waited: m.rowWait, Logger: cfg.Logger, Clock: cfg.Clock,
		}),
	}
}

// Changed invalidates what is remembered of a campaign's stock. It is
// called after each change of a campaign by this process.
func (s *Routes) Changed(campaignID string) {
	now := s.cfg.Clock()
	l := s.lanes.known(campaignID, now)
	if l == nil {
		return
	}
	l.soldOut.invalidate()
	for shard := 1; shard <= l.meta.Shards && l.meta.IsSharded(); shard++ {
		if of := s.lanes.known(models.ShardID(campaignID, shard), now); of != nil {
			of.soldOut.invalidate()
		}
	}
}
