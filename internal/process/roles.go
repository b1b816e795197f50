// Package process runs Dibs' processes. It opens both servers, checks them
// against the settings, connects the packages (api, consumer, syncer,
// finance, webhooks) into roles, and stops them in order.
package process

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"dibs/api"
	"dibs/api/console"
	"dibs/consumer"
	"dibs/consumer/redisbatch"
	"dibs/finance"
	"dibs/internal/audit"
	"dibs/internal/build"
	"dibs/internal/config"
	"dibs/internal/lease"
	"dibs/internal/ledger"
	"dibs/internal/process/metrics"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer"
	"dibs/syncer/compare"
	"dibs/syncer/lots"
	"dibs/syncer/offset"
	"dibs/syncer/records"
	"dibs/syncer/resolve"
	"dibs/syncer/retention"
	"dibs/syncer/settings"
	"dibs/syncer/writer"

	"github.com/jonboulle/clockwork"
	"golang.org/x/sync/errgroup"
)

// role is a job of a process, by the name of its command.
type role struct {
	run        func(*Stack, context.Context) error
	hasAPI     bool // else it may have a small server for metrics
	isFinance  bool
	isEmbedded bool // it can run without real servers, or without MySQL
}

var roles = map[string]role{
	"serve":    {run: (*Stack).serve, hasAPI: true, isEmbedded: true},
	"api":      {run: (*Stack).runAPI, hasAPI: true},
	"consumer": {run: (*Stack).runConsumer},
	"syncer":   {run: (*Stack).runSyncer},
	"finance":  {run: (*Stack).runFinance, isFinance: true, isEmbedded: true},
	"webhooks": {run: (*Stack).runWebhooks},
}

// Run runs a role until ctx ends. It may start while a server is unreachable.
func Run(ctx context.Context, name string, o Options) (err error) {
	of := roles[name]
	check := checkMetricsListen
	if of.hasAPI {
		check = CheckListen
	}
	if !of.isEmbedded {
		err = NeedsServers(o.Config, "dibs "+name)
	}
	if err == nil {
		err = check(o.Config)
	}
	if err == nil && name == "webhooks" {
		o.endpoints, err = ReadEndpoints(o.Config, o.Logger)
	}
	if err != nil {
		return err
	}
	o.IsFinance = of.isFinance
	o.TakesClaims = of.hasAPI
	o.waits = true
	s, err := Open(ctx, o)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // stopped before the start: there is nothing to finish
	}
	if err != nil {
		return err
	}
	defer s.Close()
	s.Logger.Info("serving", "role", name, "servers", s.Where)
	return s.runGuarded(ctx, name, func(ctx context.Context) error {
		if of.hasAPI {
			return of.run(s, ctx)
		}
		return s.withMetrics(ctx, func(ctx context.Context) error { return of.run(s, ctx) })
	})
}

// NeedsServers refuses embedded servers: another process' embedded Redis is
// out of reach.
func NeedsServers(cfg *config.Config, command string) error {
	if cfg.Embedded() {
		return config.Refuse("REDIS_URL", "`%s` needs real servers; `dibs serve` brings its own", command)
	}
	return nil
}

// runGuarded runs a role with its background checks: of servers that were
// unreachable at the start, and of the number of partitions. A failed check
// ends it.
func (s *Stack) runGuarded(ctx context.Context, role string, run func(context.Context) error) error {
	s.warn()
	metrics.RegisterRole(s.Registry, role)
	defer s.startShutdownTimer(ctx)()
	group, ctx := errgroup.WithContext(ctx)
	watching, stop := context.WithCancel(ctx)
	if !s.IsFinance {
		group.Go(func() error {
			err := settings.WatchPartitions(watching, s.DB, s.Config.Partitions, settings.DefaultPartitionsEvery)
			return config.RefuseIf(err, settings.ErrPartitions, "PARTITIONS")
		})
	}
	if s.gate != nil {
		group.Go(func() error { return s.gate.Await(watching, sqlstore.DefaultGateEvery, s.Logger) })
	}
	group.Go(func() error { return s.awaitRedis(watching) })
	group.Go(func() error { return s.watchInstallation(watching) })
	group.Go(func() error {
		defer stop()
		return s.announced(ctx, role, run)
	})
	return group.Wait()
}

func (s *Stack) announce(addr string) {
	url := "http://" + addr
	if Certificate(s.Config) != (api.TLS{}) {
		url = "https://" + addr
	}
	s.Logger.Info("listening", "url", url)
	if s.Config.Console {
		s.Logger.Info("the console is for your browser", "url", url+console.Path)
	}
	if s.Config.MetricsAddr != "" {
		s.Logger.Info("/metrics and /healthz are there, too: METRICS_ADDR is for roles without an API", "not_used", s.Config.MetricsAddr)
	}
	if s.Listening != nil {
		s.Listening(addr)
	}
}

// Serve runs every role on an open stack until ctx ends, without Run's
// checks.
func (s *Stack) Serve(ctx context.Context) error { return s.announced(ctx, "serve", s.serve) }

// serve runs every role. With embedded servers it includes the finance
// service, because no other process could read their streams. On a stop the
// API ends first, so that its claims still have a consumer.
func (s *Stack) serve(ctx context.Context) error {
	credits := s.Config.Embedded() && s.Config.FinanceDSN == "" && slices.Contains(s.Config.Groups, finance.Group)
	back, stopBack := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBack()
	group, back := errgroup.WithContext(back)
	group.Go(func() error { return s.runConsumer(back) })
	group.Go(func() error { return s.runSyncer(back) })
	if credits {
		group.Go(func() error { return s.runFinance(back) })
	}
	front, stopFront := context.WithCancel(ctx)
	defer stopFront()
	defer context.AfterFunc(back, stopFront)() // a failed role stops the API
	err := s.serveAPI(front, s.Config.ShutdownTimeout/2)
	if s.Config.RedisURL == "" && back.Err() == nil {
		s.drainEmbedded(credits)
	}
	stopBack()
	return errors.Join(err, group.Wait())
}

func (s *Stack) runAPI(ctx context.Context) error { return s.serveAPI(ctx, s.Config.ShutdownTimeout) }

// serveAPI serves HTTP until ctx ends, then finishes requests within
// closeTimeout.
func (s *Stack) serveAPI(ctx context.Context, closeTimeout time.Duration) error {
	s.parts = newParts(s.Registry, s.partsOfAPI)
	deps := api.Deps{
		Claimer: s.Scripts, States: s.Scripts, Shared: s.shared, Loader: s.Loader, Campaigns: s.Campaigns,
		Books: records.NewBooks(s.DB), Mover: s.mover,
		Claims: records.NewClaims(s.DB), Resolver: s.resolver, Applied: offset.NewStreams(s.DB, s.Scripts),
		Audit: audit.NewLog(s.DB), Groups: s.groups(),
		Ledger: ledger.New(s.DB),
		Ready:  s.readyAPI, Away: s.parts.away, Console: s.consoleDeps(), Losses: s.Loader,
	}
	if s.Config.Durability == lua.MySQL {
		deps.Rows = committed{records.NewClaims(s.DB), s.Scripts}
	}
	if s.Config.UserRateShared {
		deps.Attempts = s.shared
	}
	server, err := api.New(api.Config{
		Addr: s.Config.HTTPAddr, Version: build.Of().Document(), Tokens: Tokens(s.Config), TLS: Certificate(s.Config),
		Insecure:  s.Config.Insecure,
		AccessLog: s.Config.AccessLog, MetricsCampaigns: cmp.Or(s.Config.MetricsCampaigns, -1),
		Conns: s.Config.HTTPConns, UserRate: s.Config.UserRate,
		IdleTimeout:     s.Config.HTTPIdleTimeout,
		SubjectSecret:   s.Config.SubjectSecret,
		TrustedProxies:  s.Config.TrustedProxies,
		CORSOrigins:     s.Config.CORSOrigins,
		Info:            s.info(),
		ShutdownTimeout: closeTimeout, Tracer: s.tracer, Logger: s.Logger, Registerer: s.Registry, Gatherer: s.Registry,
	}, deps)
	if err != nil {
		return err
	}
	if err := s.Scripts.Preload(ctx); err != nil {
		s.Logger.Warn("scripts are not preloaded, the first claims will be slower", "error", err)
	}
	listener, err := listen(ctx, "HTTP_ADDR", s.Config.HTTPAddr)
	if err != nil {
		return err
	}
	return s.beside(ctx, "PROBE_ADDR", s.Config.ProbeAddr, server.Probes(), nil, func(ctx context.Context) error {
		s.announce(listener.Addr().String())
		return server.Serve(ctx, listener)
	})
}

func (s *Stack) info() api.Info {
	info := api.Info{
		Version: build.Of().Version, Partitions: s.Config.Partitions, Durability: s.Config.Durability.String(), Groups: s.Config.Groups,
	}
	if s.Campaigns != nil { // the finance service may have its own database
		info.Registered = s.groups().Names
	}
	return info
}

// runConsumer applies the claim streams to MySQL until ctx ends, then
// flushes what it has taken.
func (s *Stack) runConsumer(ctx context.Context) error {
	if !s.awaitInstallation(ctx) {
		return nil
	}
	signal := lua.NewOffsetSignal(s.Scripts)
	defer signal.Stop()
	log, err := writer.New(writer.Config{
		DB: s.DB, Partitions: s.Config.Partitions, FlushSize: s.Config.FlushSize, FlushInterval: s.Config.FlushInterval,
		Applied: signal.Publish, Logger: s.Logger, Registerer: s.Registry, Tracer: s.tracer,
	})
	if err != nil {
		return err
	}
	s.Logger.Info("consuming", "group", models.GroupSyncer, "name", s.Config.Name, "partitions", s.Config.Partitions)
	readers := lua.NewReaders(s.Scripts, s.Logger)
	applier, err := consumer.NewApplier(consumer.ApplierConfig{
		Client: s.Redis, Partitions: s.Config.Partitions, Name: s.Config.Name, Log: log, Leases: readers, Settle: s.settle(),
		CloseTimeout: s.share(), Logger: s.Logger, Registerer: s.Registry, Heartbeat: &s.pulse, Tracer: s.tracer,
	})
	if err != nil {
		return err
	}
	sharing, stopSharing := context.WithCancel(context.WithoutCancel(ctx))
	var shared sync.WaitGroup
	shared.Go(func() { readers.Run(sharing) })
	err = s.named(models.GroupSyncer).While(ctx, applier.Run)
	closing, cancel := s.drainContext(ctx)
	defer cancel()
	err = errors.Join(err, log.Close(closing))
	stopSharing() // only now others find the offset that includes everything taken here
	shared.Wait()
	return err
}

func (s *Stack) named(group string) lease.Consumer {
	return lease.Consumer{Scripts: s.Scripts, Group: group, Name: s.Config.Name, Taken: config.Refuse("NAME",
		"another process reads as %q in group %s; give each process a name of its own, the same after a restart", s.Config.Name, group)}
}

func (s *Stack) reading(group string) redisbatch.Config {
	return redisbatch.Config{
		Client: s.Redis, Group: group, Name: s.Config.Name,
		Window: windowFor(s.Config), CloseTimeout: s.share(), Logger: s.Logger, Registerer: s.Registry,
	}
}

// windowFor allows four flushes in flight: one commits, one fills, the others
// cover acks and reads. The partitions share them, because events in flight
// are in this process' memory, all of them while MySQL is unreachable.
func windowFor(cfg *config.Config) int { return max(4*cfg.FlushSize/cfg.Partitions, windowMin) }

// windowMin is the least window of a partition, in events.
const windowMin = 512

// liveWithin is how long a loop may be stuck before the process should be
// restarted. It is long because an unreachable MySQL stops the consumer's
// loop, and a restart doesn't help.
const liveWithin = 10 * time.Minute

const metricsTimeout = 5 * time.Second

// withMetrics runs a role without an API, with /metrics and /healthz if
// they have an address.
func (s *Stack) withMetrics(ctx context.Context, run func(context.Context) error) error {
	if s.Config.MetricsAddr == "" && s.Config.ProbeAddr == "" {
		return run(ctx)
	}
	s.parts = newParts(s.Registry, s.partsOfRole)
	handler, err := api.Side{
		Addr: cmp.Or(s.Config.MetricsAddr, s.Config.ProbeAddr), Tokens: Tokens(s.Config), Logger: s.Logger, Gatherer: s.Registry,
		Live: func() error { return s.pulse.Stuck(liveWithin) }, Ready: s.readyRole, Away: s.parts.away, Info: s.info(),
	}.Handler()
	if err != nil {
		return err
	}
	connections, err := Certificate(s.Config).Config(s.Logger)
	if err != nil {
		return err
	}
	return s.beside(ctx, "PROBE_ADDR", s.Config.ProbeAddr, api.Probes(handler), nil, func(ctx context.Context) error {
		return s.beside(ctx, "METRICS_ADDR", s.Config.MetricsAddr, handler, connections, run)
	})
}

// beside runs run while a small server listens at a setting's address; ""
// is no server.
func (s *Stack) beside(
	ctx context.Context, setting, addr string, handler http.Handler, secure *tls.Config, run func(context.Context) error,
) error {
	if addr == "" {
		return run(ctx)
	}
	server := &http.Server{Handler: handler, ReadTimeout: metricsTimeout, WriteTimeout: 2 * metricsTimeout, MaxHeaderBytes: 16 << 10}
	listener, err := listen(ctx, setting, addr)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- api.Serve(server, listener, s.Config.HTTPConns, secure) }()
	err = run(ctx)
	closeErr := server.Close()
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		closeErr = serveErr
	}
	return errors.Join(err, closeErr)
}

func (s *Stack) groups() *retention.Registry {
	return retention.NewRegistry(s.DB, s.Scripts, s.Config.Groups)
}

// trimming is the trimmer's config. An embedded stream ends with this
// process, so its entries needn't be kept.
func (s *Stack) trimming() retention.TrimmerConfig {
	keep := s.Config.StreamKeep
	if s.Config.RedisURL == "" {
		keep = 0
	}
	return retention.TrimmerConfig{
		Streams: s.Scripts, Registry: s.groups(), Keep: keep, KeepBytes: s.Config.StreamKeepBytes, Logger: s.Logger, Registerer: s.Registry,
		Applied: func(ctx context.Context, partition int) (lua.EntryID, error) {
			return offset.Applied(ctx, s.DB, partition)
		},
	}
}

func (s *Stack) runSyncer(ctx context.Context) error {
	if !s.awaitInstallation(ctx) {
		return nil
	}
	leader := syncer.NewLeader(s.Scripts, s.Config.Name, s.Logger)
	metrics.RegisterLeader(s.Registry, leader.Leads)
	role := syncer.New(syncer.Config{
		Trimmer: retention.NewTrimmer(s.trimming()), Pruner: retention.NewPruner(s.DB),
		Keeper:   lots.NewKeeper(s.Loader, s.Config.IdleEvict, s.Registry),
		Comparer: compare.New(s.DB, s.Scripts, s.Loader, s.Logger, s.Registry),
		Relay:    s.relay, Expirer: resolve.NewExpirer(s.relay, s.Loader.OK, s.Registry),
		Finalizer:  resolve.NewFinalizer(s.relay, s.Loader, clockwork.NewRealClock(), s.Registry),
		CheckReads: func(ctx context.Context) error { return sqlstore.CheckReads(ctx, s.DB) },
		Mover:      s.mover, Leader: leader, Logger: s.Logger, Heartbeat: &s.pulse,
	})
	s.Logger.Info("syncer runs its jobs", "partitions", s.Config.Partitions)
	return role.Run(ctx)
}
