package cmd

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
	"dibs/internal/ledger"
	"dibs/internal/sqlstore"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer"
	"dibs/syncer/campaigns"
	"dibs/syncer/compare"
	"dibs/syncer/lots"
	"dibs/syncer/resolve"
	"dibs/syncer/retention"
	"dibs/syncer/writer"

	"github.com/jonboulle/clockwork"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

func newServe(env Env) *cobra.Command {
	return role(env, cobra.Command{
		Use:   "serve",
		Short: "Run every role in one process; embedded servers when none are configured",
		Long: `Runs API, consumer and syncer in one process. With embedded servers it is the finance service as well, as no one else could
read the embedded streams; beside real ones run 'dibs finance', or a service of your own in that group.`,
		Example: `  dibs serve
  DIBS_REDIS_URL=redis://127.0.0.1:6379 DIBS_MYSQL_DSN='dibs:secret@tcp(127.0.0.1:3306)/dibs' dibs serve`,
	}, checkListen, func(s *stack, ctx context.Context) error {
		s.credits = s.cfg.Embedded() && s.cfg.FinanceDSN == "" && slices.Contains(s.cfg.Groups, finance.Group)
		return s.serve(ctx, s.announce(env))
	}, takesClaims)
}

func newAPI(env Env) *cobra.Command {
	return role(env, cobra.Command{
		Use:     "api",
		Short:   "Run the HTTP API: campaigns, claims, stock",
		Example: "  dibs api --http-addr 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem",
	}, checkListen, func(s *stack, ctx context.Context) error {
		return s.runAPI(ctx, s.cfg.ShutdownTimeout, s.announce(env))
	}, takesClaims)
}

func newConsumer(env Env) *cobra.Command {
	return role(env, cobra.Command{
		Use:     "consumer",
		Short:   "Run the consumer: from the claim streams into MySQL, in batches",
		Example: "  dibs consumer --name consumer-1 --metrics-addr 127.0.0.1:9091",
	}, checkMetricsListen, metered((*stack).runConsumer))
}

func newSyncer(env Env) *cobra.Command {
	return role(env, cobra.Command{
		Use:     "syncer",
		Short:   "Run the syncer: complete changes of campaigns, evict idle ones, trim the streams",
		Example: "  dibs syncer --groups syncer,finance",
	}, checkMetricsListen, metered((*stack).runSyncer))
}

// role is a command that runs until it is told to end, after what check refuses. It may start while
// a server is away.
func role(env Env, c cobra.Command, check func(*config.Config) error, run func(*stack, context.Context) error,
	options ...func(*stack)) *cobra.Command {
	return command(env, c, func(ctx context.Context, c *cobra.Command, cfg *config.Config) error {
		if name := c.Name(); name != "serve" && name != "finance" {
			if err := needsServers(c, cfg); err != nil {
				return err
			}
		}
		if err := check(cfg); err != nil {
			return err
		}
		begun := false
		err := withStack(ctx, env, cfg, func(s *stack) error {
			begun = true
			s.log.Info("serving", "role", c.Name(), "servers", s.where)
			return s.runGuarded(ctx, c.Name(), func(ctx context.Context) error { return run(s, ctx) })
		}, append(options, allowDBDown, redisMayBeAway)...)
		if !begun && ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil // told to end before it had started, it has nothing to finish
		}
		return err
	})
}

// needsServers refuses a command that would find no one to work with: another process's embedded
// Redis is out of reach.
func needsServers(c *cobra.Command, cfg *config.Config) error {
	if cfg.Embedded() {
		return config.Refuse("REDIS_URL", "`%s` needs real servers; `dibs serve` brings its own", c.CommandPath())
	}
	return nil
}

// withServers is a command that works with real servers.
func withServers(env Env, c cobra.Command, run func(context.Context, *stack) error) *cobra.Command {
	return command(env, c, func(ctx context.Context, c *cobra.Command, cfg *config.Config) error {
		if err := needsServers(c, cfg); err != nil {
			return err
		}
		return withStack(ctx, env, cfg, func(s *stack) error { return run(ctx, s) })
	})
}

func withStack(ctx context.Context, env Env, cfg *config.Config, run func(*stack) error, options ...func(*stack)) error {
	s, err := openStack(ctx, cfg, newLogger(cfg, env.Stderr), append(options, func(s *stack) {
		s.registry = cmp.Or(env.Registry, s.registry)
		s.environ = env.Environ
	})...)
	if err != nil {
		return err
	}
	defer s.close()
	return run(s)
}

// runGuarded runs a role beside what checks the servers that were away when it started, and as long
// as the deployment has the number of partitions that this process has. A check that fails ends it.
func (s *stack) runGuarded(ctx context.Context, role string, run func(context.Context) error) error {
	s.warn()
	registerRole(s.registry, role)
	defer s.startShutdownTimer(ctx)()
	group, ctx := errgroup.WithContext(ctx)
	watching, stop := context.WithCancel(ctx)
	if !s.isFinance {
		group.Go(func() error {
			err := campaigns.WatchPartitions(watching, s.db, s.cfg.Partitions, campaigns.DefaultPartitionsEvery)
			return config.RefuseIf(err, campaigns.ErrPartitions, "PARTITIONS")
		})
	}
	if s.gate != nil {
		group.Go(func() error { return s.gate.Await(watching, sqlstore.DefaultGateEvery, s.log) })
	}
	group.Go(func() error { return s.awaitRedis(watching) })
	group.Go(func() error { return s.watchInstallation(watching) })
	group.Go(func() error {
		defer stop()
		return s.announced(ctx, role, run)
	})
	return group.Wait()
}

func (s *stack) announce(env Env) func(string) {
	return func(addr string) {
		scheme := "http://"
		if certificate(s.cfg) != (api.TLS{}) {
			scheme = "https://"
		}
		s.log.Info("listening", "url", scheme+addr)
		if s.cfg.Console {
			s.log.Info("the console is for your browser", "url", scheme+addr+console.Path)
		}
		if s.cfg.MetricsAddr != "" {
			s.log.Info("/metrics and /healthz are there, too: METRICS_ADDR is for roles without an API", "not_used", s.cfg.MetricsAddr)
		}
		if env.Listening != nil {
			env.Listening(addr)
		}
	}
}

// serve runs every role. On a stop the API goes first, so that what it took still finds a consumer.
func (s *stack) serve(ctx context.Context, listening func(addr string)) error {
	back, stopBack := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBack()
	group, back := errgroup.WithContext(back)
	group.Go(func() error { return s.runConsumer(back) })
	group.Go(func() error { return s.runSyncer(back) })
	if s.credits {
		group.Go(func() error { return s.runFinance(back) })
	}
	front, stopFront := context.WithCancel(ctx)
	defer stopFront()
	defer context.AfterFunc(back, stopFront)() // a role that failed takes the API along
	err := s.runAPI(front, s.cfg.ShutdownTimeout/2, listening)
	if s.cfg.RedisURL == "" && back.Err() == nil {
		s.drainEmbedded()
	}
	stopBack()
	return errors.Join(err, group.Wait())
}

// runAPI serves HTTP until ctx ends, and then what was taken for as long as closeTimeout; listening is told the address.
func (s *stack) runAPI(ctx context.Context, closeTimeout time.Duration, listening func(addr string)) error {
	s.parts = newParts(s.registry, s.partsOfAPI)
	deps := api.Deps{
		Claimer: s.scripts, States: s.scripts, Shared: s.shared, Loader: s.loader, Campaigns: s.campaigns, Mover: s.mover,
		Claims: campaigns.NewClaims(s.db), Resolver: s.resolver, Applied: writer.NewAppliedStreams(s.db, s.scripts), Audit: audit.NewLog(s.db), Groups: s.groups(),
		Ledger: ledger.New(s.db),
		Ready:  s.readyAPI, Away: s.parts.away, Console: s.consoleDeps(), Losses: s.loader,
	}
	if s.cfg.Durability == lua.MySQL {
		deps.Rows = committed{campaigns.NewClaims(s.db), s.scripts}
	}
	if s.cfg.UserRateShared {
		deps.Attempts = s.shared
	}
	server, err := api.New(api.Config{
		Addr: s.cfg.HTTPAddr, Version: build.Of().Document(), Tokens: tokens(s.cfg), TLS: certificate(s.cfg), Insecure: s.cfg.Insecure,
		AccessLog: s.cfg.AccessLog, MetricsCampaigns: cmp.Or(s.cfg.MetricsCampaigns, -1), Conns: s.cfg.HTTPConns, UserRate: s.cfg.UserRate,
		IdleTimeout:     s.cfg.HTTPIdleTimeout,
		SubjectSecret:   s.cfg.SubjectSecret,
		TrustedProxies:  s.cfg.TrustedProxies,
		CORSOrigins:     s.cfg.CORSOrigins,
		Info:            s.info(),
		ShutdownTimeout: closeTimeout, Tracer: s.tracer, Logger: s.log, Registerer: s.registry, Gatherer: s.registry,
	}, deps)
	if err != nil {
		return err
	}
	if err := s.scripts.Preload(ctx); err != nil {
		s.log.Warn("scripts are not preloaded, the first claims will be slower", "error", err)
	}
	listener, err := listen(ctx, "HTTP_ADDR", s.cfg.HTTPAddr)
	if err != nil {
		return err
	}
	return s.beside(ctx, "PROBE_ADDR", s.cfg.ProbeAddr, server.Probes(), nil, func(ctx context.Context) error {
		listening(listener.Addr().String())
		return server.Serve(ctx, listener)
	})
}

// info is what this process answers to GET /v1/info.
func (s *stack) info() api.Info {
	info := api.Info{
		Version: build.Of().Version, Partitions: s.cfg.Partitions, Durability: s.cfg.Durability.String(), Groups: s.cfg.Groups,
	}
	if s.campaigns != nil { // not the finance service, whose database may be its own
		info.Registered = s.groups().Names
	}
	return info
}

// runConsumer applies the claim streams to MySQL until ctx ends, then flushes what was taken.
func (s *stack) runConsumer(ctx context.Context) error {
	if !s.awaitInstallation(ctx) {
		return nil
	}
	signal := lua.NewOffsetSignal(s.scripts)
	defer signal.Stop()
	log, err := writer.New(writer.Config{
		DB: s.db, Partitions: s.cfg.Partitions, FlushSize: s.cfg.FlushSize, FlushInterval: s.cfg.FlushInterval,
		Applied: signal.Tell, Logger: s.log, Registerer: s.registry, Tracer: s.tracer,
	})
	if err != nil {
		return err
	}
	s.log.Info("consuming", "group", models.GroupSyncer, "name", s.cfg.Name, "partitions", s.cfg.Partitions)
	readers := lua.NewReaders(s.scripts, s.log)
	applier, err := consumer.NewApplier(consumer.ApplierConfig{
		Client: s.rdb, Partitions: s.cfg.Partitions, Name: s.cfg.Name, Log: log, Leases: readers, Settle: s.settle(),
		CloseTimeout: s.share(), Logger: s.log, Registerer: s.registry, Heartbeat: &s.pulse, Tracer: s.tracer,
	})
	if err != nil {
		return err
	}
	sharing, stopSharing := context.WithCancel(context.WithoutCancel(ctx))
	var shared sync.WaitGroup
	shared.Go(func() { readers.Run(sharing) })
	err = s.withConsumerLease(ctx, models.GroupSyncer, applier.Run)
	closing, cancel := s.drainContext(ctx)
	defer cancel()
	err = errors.Join(err, log.Close(closing))
	stopSharing() // now others find the offset behind what this process took
	shared.Wait()
	return err
}

// reading is how a group reads the claim streams.
func (s *stack) reading(group string) redisbatch.Config {
	return redisbatch.Config{
		Client: s.rdb, Group: group, Name: s.cfg.Name,
		Window: windowFor(s.cfg), CloseTimeout: s.share(), Logger: s.log, Registerer: s.registry,
	}
}

// windowFor has four flushes on their way: one commits, one fills, and acks and reads take a while. The partitions share
// them: what is in flight is in this process' memory, all of it while MySQL is away.
func windowFor(cfg *config.Config) int { return max(4*cfg.FlushSize/cfg.Partitions, windowMin) }

// windowMin is the least window of a partition, in events.
const windowMin = 512

// liveWithin is for how long a loop may be stuck before the process is better started again. A MySQL that is away stops the
// consumer's, and no restart brings it back.
const liveWithin = 10 * time.Minute

// metricsTimeout bounds a request to the side server.
const metricsTimeout = 5 * time.Second

// metered is a role that has no HTTP of its own, with metrics.
func metered(run func(*stack, context.Context) error) func(*stack, context.Context) error {
	return func(s *stack, ctx context.Context) error {
		return s.withMetrics(ctx, func(ctx context.Context) error { return run(s, ctx) })
	}
}

// withMetrics runs a role that has no HTTP of its own, beside /metrics and /healthz if an address is set for them.
func (s *stack) withMetrics(ctx context.Context, run func(context.Context) error) error {
	if s.cfg.MetricsAddr == "" && s.cfg.ProbeAddr == "" {
		return run(ctx)
	}
	s.parts = newParts(s.registry, s.partsOfRole)
	handler, err := api.Side{
		Addr: cmp.Or(s.cfg.MetricsAddr, s.cfg.ProbeAddr), Tokens: tokens(s.cfg), Logger: s.log, Gatherer: s.registry,
		Live: func() error { return s.pulse.Stuck(liveWithin) }, Ready: s.readyRole, Away: s.parts.away, Info: s.info(),
	}.Handler()
	if err != nil {
		return err
	}
	connections, err := certificate(s.cfg).Config(s.log)
	if err != nil {
		return err
	}
	return s.beside(ctx, "PROBE_ADDR", s.cfg.ProbeAddr, api.Probes(handler), nil, func(ctx context.Context) error {
		return s.beside(ctx, "METRICS_ADDR", s.cfg.MetricsAddr, handler, connections, run)
	})
}

// beside runs something while a small server listens at the address of a setting; "" is none.
func (s *stack) beside(
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
	go func() { served <- api.Serve(server, listener, s.cfg.HTTPConns, secure) }()
	err = run(ctx)
	closeErr := server.Close()
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		closeErr = serveErr
	}
	return errors.Join(err, closeErr)
}

// groups is the registry of consumer groups.
func (s *stack) groups() *retention.Registry {
	return retention.NewRegistry(s.db, s.scripts, s.cfg.Groups)
}

// trimming is how the claim streams are trimmed. An embedded one ends with this process: nothing is read again.
func (s *stack) trimming() retention.TrimmerConfig {
	keep := s.cfg.StreamKeep
	if s.cfg.RedisURL == "" {
		keep = 0
	}
	return retention.TrimmerConfig{
		Streams: s.scripts, Registry: s.groups(), Keep: keep, KeepBytes: s.cfg.StreamKeepBytes, Logger: s.log, Registerer: s.registry,
		Applied: func(ctx context.Context, partition int) (lua.EntryID, error) {
			return writer.Applied(ctx, s.db.ConnPool, partition)
		},
	}
}

// runSyncer runs the jobs of the syncer until ctx ends.
func (s *stack) runSyncer(ctx context.Context) error {
	if !s.awaitInstallation(ctx) {
		return nil
	}
	leader := syncer.NewLeader(s.scripts, s.cfg.Name, s.log)
	registerLeader(s.registry, leader.Leads)
	role := syncer.New(syncer.Config{
		Trimmer: retention.NewTrimmer(s.trimming()), Pruner: retention.NewPruner(s.db),
		Keeper:   lots.NewKeeper(s.loader, s.cfg.IdleEvict, s.registry),
		Comparer: compare.New(s.db, s.scripts, s.loader, s.log, s.registry),
		Relay:    s.relay, Expirer: resolve.NewExpirer(s.relay, s.loader.OK, s.registry),
		Finalizer:  resolve.NewFinalizer(s.relay, s.loader, clockwork.NewRealClock(), s.registry),
		CheckReads: func(ctx context.Context) error { return sqlstore.CheckReads(ctx, s.db) },
		Mover:      s.mover, Leader: leader, Logger: s.log, Heartbeat: &s.pulse,
	})
	s.log.Info("syncer runs its jobs", "partitions", s.cfg.Partitions)
	return role.Run(ctx)
}
