package claiming

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"dibs/api/workers"
)

// ClaimingConfig is what the claim routes need; all of it.
type Config struct {
	Claimer   Claimer
	States    StateReader
	Hydrator  Hydrator
	Campaigns campaignGetter
	Workers   *workers.Workers

	ClaimsPerCall  int
	ClaimsInFlight int
	QueueMax       int
	QueueWait      time.Duration
	CallTimeout    time.Duration
	LookupTimeout  time.Duration
	LookupsMax     int
	SoldOutFor     time.Duration
	CampaignsMax   int
	CampaignIdle   time.Duration
	UserRate       float64
	UsersMax       int

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Clock      func() time.Time
}

// claimRoutes answers the claim routes.
type Routes struct {
	cfg      Config
	log      *slog.Logger
	desks    *desks
	rates    *userRates
	metrics  *claimMetrics
	complain rate.Sometimes // bounds what a Redis or MySQL that is away writes into the log
}

func New(cfg Config) (*Routes, error) {
	rates, err := newUserRates(cfg.UserRate, cfg.UsersMax)
	if err != nil {
		return nil, err
	}
	metrics, err := newClaimMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	return &Routes{
		cfg: cfg, log: cfg.Logger, desks: newDesks(cfg, metrics), rates: rates, metrics: metrics,
		complain: rate.Sometimes{Interval: time.Second},
	}, nil
}

// changed is told of each change of a campaign by this process.
func (s *Routes) Changed(campaignID string) { s.desks.changed(campaignID) }

// holdOf is the hold_for of a campaign, which never changes. It brings no campaign into Redis, for nobody wants to claim.
func (s *Routes) HoldOf(ctx context.Context, campaignID string) (ms int64, err error) {
	if d := s.desks.known(campaignID, s.cfg.Clock()); d != nil {
		return d.meta.HoldForMs, nil
	}
	if state, err := s.cfg.States.State(ctx, campaignID); err == nil {
		return state.Meta.HoldForMs, nil
	}
	c, err := s.cfg.Campaigns.Get(ctx, campaignID)
	return c.HoldForMs, err
}
