package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"

	"dibs/api/auth"
	"dibs/api/claimed"
	"dibs/api/claiming"
	"dibs/api/console"
	"dibs/api/live"
	"dibs/api/operator"
	"dibs/api/route"
	"dibs/api/workers"
	"dibs/internal/seal"
	"dibs/internal/sleep"
)

const (
	headerTimeout  = 5 * time.Second  // to read a request's headers
	readTimeout    = 10 * time.Second // to read a whole request
	writeTimeout   = 30 * time.Second // more than all waits of a request together
	headerBytesMax = 16 << 10
	// drainDelay is how long a stopping server still answers. /readyz says
	// no, and each answer closes its connection. Without it a request in
	// flight on a kept-alive connection would fail.
	drainDelay = 300 * time.Millisecond
)

// Server is the HTTP API of one process.
type Server struct {
	cfg     Config
	ready   func(ctx context.Context) error
	away    func(ctx context.Context) []string
	gate    *auth.Gate
	tls     *tls.Config
	workers *workers.Group
	metrics *metrics

	claiming *claiming.Routes
	losses   claiming.Losses // nil: no reports
	audit    Audit
	tickets  *seal.Sealer
	shared   Shared
	operator *operator.Routes
	claimed  *claimed.Routes
	live     *live.Sampler
	console  *console.Console // nil: no console

	handler  http.Handler
	scrape   http.Handler
	openAPI  []byte
	stopping atomic.Bool
	logSome  rate.Sometimes // an unreachable Redis fails every probe

	headerTimeout, readTimeout time.Duration
}

// New makes a Server. Errors: ErrConfig, with the cause from auth.Door.Check;
// or an unusable certificate. A Registerer can serve only one Server.
func New(cfg Config, deps Deps) (*Server, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := deps.validate(); err != nil {
		return nil, err
	}
	connections, err := cfg.TLS.Config(cfg.Logger)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, ready: deps.Ready, away: deps.away(), losses: deps.Losses, audit: deps.Audit, shared: deps.Shared, tls: connections,
		workers: &workers.Group{},
		scrape:  promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{}),
		logSome: rate.Sometimes{Interval: time.Second}, headerTimeout: headerTimeout, readTimeout: readTimeout,
	}
	s.tickets, err = seal.New(sharedSecret(&cfg.Tokens), "watch ticket")
	if err != nil {
		return nil, err
	}
	s.gate, err = auth.New(auth.Config{
		Addr: cfg.Addr, Tokens: cfg.Tokens, Logger: cfg.Logger, Registerer: cfg.Registerer, Refused: s.noteRefusal, Reloaded: s.noteReload,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := s.makeHandlers(&deps); err != nil {
		return nil, err
	}
	var routes []route.Served
	routes, s.openAPI, err = route.Serve(s.routes(), cfg.Version)
	if err != nil {
		return nil, err
	}
	s.handler = s.mux(routes)
	return s, nil
}

func (s *Server) makeHandlers(deps *Deps) error {
	cfg := &s.cfg
	s.metrics = newMetrics(cfg.Registerer)
	s.claiming = claiming.New(claiming.Config{
		Claimer: deps.Claimer, States: deps.States, Loader: deps.Loader, Campaigns: deps.Campaigns, Mover: deps.Mover, Rows: deps.Rows,
		Workers:       s.workers,
		ClaimsPerCall: cfg.ClaimsPerCall, ClaimsInFlight: cfg.ClaimsInFlight, QueueWait: cfg.QueueWait, CallTimeout: cfg.CallTimeout,
		UserRate: cfg.UserRate, SubjectSecret: cfg.SubjectSecret, Attempts: deps.Attempts, Tracer: cfg.Tracer, Logger: cfg.Logger,
		Registerer: cfg.Registerer, Clock: cfg.Clock,
	})
	s.operator = operator.New(operator.Config{
		Campaigns: deps.Campaigns, Audit: deps.Audit, Groups: deps.Groups, Ledger: deps.Ledger,
		State: deps.States.State, Load: deps.Loader.Load, Delete: deps.Loader.Delete, Changed: s.claiming.Changed,
		Logger: cfg.Logger, Clock: cfg.Clock,
	})
	s.claimed = claimed.New(claimed.Config{
		Claims: deps.Claims, Resolver: deps.Resolver, Applied: deps.Applied, Workers: s.workers, Changed: s.claiming.Changed,
		Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	if cfg.MetricsCampaigns > 0 {
		cfg.Registerer.MustRegister(newCampaignMetrics(s.claiming.Busiest, deps.Shared, deps.Books, cfg.MetricsCampaigns))
	}
	s.live = live.New(live.Config{
		Redis: deps.Shared, Books: deps.Books, Busy: s.busy, Workers: s.workers, Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	return s.makeConsole(deps.Console)
}

// Probes serves an orchestrator's probes on a separate listener, whose
// connections API callers can't exhaust.
func (s *Server) Probes() http.Handler { return Probes(s.handler) }

// Handler is the handler that Serve serves.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve serves on ln until ctx ends. Then /readyz says no. After drainDelay
// it accepts nothing more and finishes the accepted requests, all within
// Config.ShutdownTimeout. It returns nil if everything was finished, else
// workers.ErrStop. A Server serves once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := s.httpServer(ctx)
	s.live.Record(s.claiming.Answered)
	reporting, stopReporting := context.WithCancel(ctx)
	defer stopReporting() // harmless if called twice
	if s.losses != nil {
		s.claiming.ReportLosses(reporting, s.losses)
	}
	failed := make(chan error, 1)
	go func() { failed <- Serve(srv, ln, s.cfg.Conns, s.tls) }()
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("api: serve: %w", err)
	case <-ctx.Done():
	}
	stopReporting()
	stopErr := s.stop(context.WithoutCancel(ctx), srv)
	if stopErr == nil {
		s.cfg.Logger.Info("http closed; every request that was taken is answered")
	}
	return errors.Join(err, stopErr)
}

func (s *Server) httpServer(ctx context.Context) *http.Server {
	// Requests outlive ctx: accepted ones are finished.
	base := context.WithoutCancel(ctx)
	return &http.Server{
		Handler: s.handler, BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: s.headerTimeout, ReadTimeout: s.readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: s.cfg.IdleTimeout, MaxHeaderBytes: headerBytesMax,
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
	}
}

func (s *Server) stop(ctx context.Context, srv *http.Server) error {
	s.stopping.Store(true)
	s.live.Stop()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ShutdownTimeout)
	defer cancel()
	_ = sleep.For(ctx, drainDelay) // shortened by ShutdownTimeout
	err := srv.Shutdown(ctx)
	if err != nil {
		_ = srv.Close() // aborts the remaining requests
		err = fmt.Errorf("%w: requests are still being answered: %w", workers.ErrStop, err)
	}
	return errors.Join(err, s.workers.Stop(ctx))
}
