package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"

	"dibs/api/claimed"
	"dibs/api/claiming"
	"dibs/api/operator"
	"dibs/api/workers"
)

// Server is the HTTP API of one process.
type Server struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	gate    *gate
	crew    *workers.Workers
	metrics *metrics

	claims   *claiming.Routes
	operator *operator.Routes
	claimed  *claimed.Routes

	handler  http.Handler
	scrape   http.Handler
	openAPI  []byte
	stopping atomic.Bool
	complain rate.Sometimes // bounds what a Redis or MySQL that is away writes into the log
}

// New makes a Server. Errors: ErrConfig, ErrListen, and metrics that are registered already.
func New(cfg Config, deps Deps) (*Server, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Claimer == nil || deps.States == nil || deps.Hydrator == nil || deps.Campaigns == nil || deps.Claims == nil ||
		deps.Resolver == nil || deps.Streams == nil || deps.Ready == nil {
		return nil, fmt.Errorf("%w: every field of Deps is needed", ErrConfig)
	}
	s := &Server{
		cfg: cfg, deps: deps, log: cfg.Logger, gate: newGate(cfg.Tokens), crew: workers.New(),
		scrape:   promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{}),
		complain: rate.Sometimes{Interval: time.Second},
	}
	if err := s.furnish(); err != nil {
		return nil, err
	}
	routes := s.routes()
	text, handlers, err := s.document(routes)
	if err != nil {
		return nil, err
	}
	s.openAPI = text
	s.handler = s.mux(routes, handlers)
	return s, nil
}

// furnish makes the rooms.
func (s *Server) furnish() (err error) {
	cfg, deps := &s.cfg, &s.deps
	if s.metrics, err = newMetrics(cfg.Registerer); err != nil {
		return err
	}
	s.claims, err = claiming.New(claiming.Config{
		Claimer: deps.Claimer, States: deps.States, Hydrator: deps.Hydrator, Campaigns: deps.Campaigns, Workers: s.crew,
		ClaimsPerCall: cfg.ClaimsPerCall, ClaimsInFlight: cfg.ClaimsInFlight, QueueMax: cfg.QueueMax, QueueWait: cfg.QueueWait,
		CallTimeout: cfg.CallTimeout, LookupTimeout: cfg.LookupTimeout, LookupsMax: cfg.LookupsMax, SoldOutFor: cfg.SoldOutFor,
		CampaignsMax: cfg.CampaignsMax, CampaignIdle: cfg.CampaignIdle, UserRate: cfg.UserRate, UsersMax: cfg.UsersMax,
		Logger: cfg.Logger, Registerer: cfg.Registerer, Clock: cfg.Clock,
	})
	if err != nil {
		return err
	}
	s.operator = operator.New(operator.Config{
		Campaigns: deps.Campaigns, State: deps.States.State, Hydrate: deps.Hydrator.Hydrate, Changed: s.claims.Changed, AdminTimeout: cfg.AdminTimeout,
		PacketsTimeout: cfg.PacketsTimeout, PacketsReadTimeout: cfg.PacketsReadTimeout, WriteTimeout: cfg.WriteTimeout, Logger: cfg.Logger,
	})
	s.claimed, err = claimed.New(claimed.Config{
		Claims: deps.Claims, Resolver: deps.Resolver, Streams: deps.Streams, Workers: s.crew,
		Changed: s.claims.Changed, HoldOf: s.claims.HoldOf, Group: cfg.Group, LookupTimeout: cfg.LookupTimeout, AdminTimeout: cfg.AdminTimeout,
		CallTimeout: cfg.CallTimeout, ResolveWait: cfg.ResolveWait, TailMax: cfg.TailMax, TailIdle: cfg.TailIdle,
		Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	return err
}

// Handler answers requests; it is what Serve serves.
func (s *Server) Handler() http.Handler { return s.handler }

// Run listens on Config.Addr and serves until ctx ends, see Serve.
func (s *Server) Run(ctx context.Context) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", s.cfg.Addr)
	if err != nil {
		return fmt.Errorf("api: listen: %w", err)
	}
	return s.Serve(ctx, ln)
}

// Serve serves on ln until ctx ends. Then it says so on /readyz, bids its clients farewell, stops accepting, and finishes
// what it has taken within Config.ShutdownTimeout: nil when all of it was finished, ErrStop when not. A Server serves once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := s.httpServer(ctx)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("api: serve: %w", err)
	case <-ctx.Done():
	}
	stopErr := s.stop(context.WithoutCancel(ctx), srv)
	if stopErr == nil {
		s.log.Info("http closed; every request that was taken is answered")
	}
	return errors.Join(err, stopErr)
}

func (s *Server) httpServer(ctx context.Context) *http.Server {
	// Requests outlive ctx: what was taken is finished.
	base := context.WithoutCancel(ctx)
	return &http.Server{
		Handler: s.handler, BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: s.cfg.HeaderTimeout, ReadTimeout: s.cfg.ReadTimeout, WriteTimeout: s.cfg.WriteTimeout,
		IdleTimeout: s.cfg.IdleTimeout, MaxHeaderBytes: s.cfg.HeaderBytesMax,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
}

func (s *Server) stop(ctx context.Context, srv *http.Server) error {
	s.stopping.Store(true)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ShutdownTimeout)
	defer cancel()
	select {
	case <-time.After(s.cfg.Farewell):
	case <-ctx.Done():
	}
	if err := srv.Shutdown(ctx); err != nil {
		_ = srv.Close() // the requests that are left are cut off
		err = fmt.Errorf("%w: requests are still being answered: %w", workers.ErrStop, err)
		return errors.Join(err, s.crew.Stop(ctx))
	}
	return s.crew.Stop(ctx)
}

// getMetrics is GET /metrics.
func (s *Server) getMetrics(w http.ResponseWriter, r *http.Request) int {
	s.scrape.ServeHTTP(w, r)
	return http.StatusOK
}
