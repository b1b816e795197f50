package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"dibs/internal/build"
	"dibs/internal/config"
	"dibs/internal/migrations"
	"dibs/internal/otlp"
	"dibs/internal/pulse"
	"dibs/internal/redisconn"
	"dibs/internal/softstate"
	"dibs/internal/sqlstore"
	"dibs/internal/tracing"
	"dibs/lua"
	"dibs/syncer/campaigns"
	"dibs/syncer/lots"
	"dibs/syncer/resolve"
	"dibs/syncer/shards"
	"dibs/syncer/writer"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"
)

// startTimeout bounds the checks before a role starts.
const startTimeout = 30 * time.Second

// stack is what a process holds open: both servers, and what is made of them for every role.
type stack struct {
	cfg      *config.Config
	log      *slog.Logger
	registry *prometheus.Registry
	environ  []string
	tracer   *tracing.Tracer // nil: no traces

	rdb       redis.UniversalClient
	redisURL  func() string // as it is by now
	scripts   *lua.Scripts
	shared    *softstate.Store
	db        *gorm.DB
	campaigns *campaigns.Repository
	loader    *lots.Loader
	mover     *shards.Mover
	relay     *resolve.Relay
	resolver  *resolve.Resolver

	installation     string        // that both servers belong to, once it was found to be the same
	sameInstallation chan struct{} // is closed then

	isFinance      bool           // set before opening
	takesClaims    bool           // set before opening
	allowDBDown    bool           // set before opening
	redisMayBeAway bool           // set before opening
	later          []check        // of Redis, that failed at the start
	gate           *sqlstore.Gate // of a MySQL that was away when the process started, else nil

	parts *parts          // the servers, for probes and metrics
	pulse pulse.Heartbeat // of the loops of consumer, syncer and finance

	credits bool // serve runs the finance service, too

	end atomic.Pointer[time.Time] // of this process at the latest, once it stops

	redisNotPersistent atomic.Bool            // a Redis keeps no file of what it is told
	aclAdvice          atomic.Pointer[string] // about a Redis that would not load its file

	where   string   // the servers, for people
	closers []func() // in the order of opening
}

// openStack connects to both servers, embedded ones if none are set, and refuses what could not work later: an older
// schema, another number of partitions, a Redis that evicts.
func openStack(ctx context.Context, cfg *config.Config, log *slog.Logger, options ...func(*stack)) (*stack, error) {
	s := &stack{cfg: cfg, log: log, registry: newRegistry()}
	for _, set := range options {
		set(s)
	}
	check := cfg.CheckServers
	opening := []func(context.Context) error{
		s.openTraces, s.openRedis, s.openSQL, s.makeParts, s.registerPools, s.checkInstallation, s.checkDurability,
	}
	if s.isFinance {
		check = cfg.CheckFinance
		opening = []func(context.Context) error{s.openTraces, s.openRedis, s.openBooks, s.checkStreams, s.checkInstallation}
	}
	if err := check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, open := range opening {
		if err := open(ctx); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// close closes in reverse order. It may be called once.
func (s *stack) close() {
	for _, v := range slices.Backward(s.closers) {
		v()
	}
}

// openTraces has spans sent where OTEL_* say, if they say so.
func (s *stack) openTraces(context.Context) error {
	provider, end, err := otlp.Open(s.environ, build.Of().Version, s.log)
	if err != nil {
		return fmt.Errorf("%w: %w", config.ErrConfig, err)
	}
	if provider == nil {
		return nil
	}
	s.tracer = tracing.New(provider)
	s.closers = append(s.closers, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = end(ctx) // what is lost is logged
	})
	return nil
}

func (s *stack) openRedis(ctx context.Context) error {
	rdb, err := s.connectRedis(ctx)
	if err != nil {
		return err
	}
	s.rdb = rdb
	s.closers = append(s.closers, func() { _ = rdb.Close() })
	s.scripts, err = lua.New(rdb, lua.Options{
		Partitions: s.cfg.Partitions, Durability: s.cfg.Durability, Observe: observeScripts(s.registry), CheckServer: s.checkFsync,
	})
	if err != nil {
		return fmt.Errorf("cmd: %w", err)
	}
	s.shared = softstate.New(rdb, s.scripts)
	if s.cfg.RedisURL == "" {
		return nil
	}
	return s.orLater(ctx, func(ctx context.Context) error {
		return config.RefuseIf(s.checkRedis(ctx), redisconn.ErrFsync, "DURABILITY") // its connections are checked
	})
}

// connectRedis makes the client of the configured Redis, or of an embedded one.
func (s *stack) connectRedis(ctx context.Context) (redis.UniversalClient, error) {
	if s.cfg.RedisURL == "" {
		server, end, err := embedRedis()
		if err != nil {
			return nil, fmt.Errorf("embedded redis: %w", err)
		}
		s.closers = append(s.closers, end)
		return redisconn.Connect("redis://" + server.Addr())
	}
	url, err := s.cfg.Renewed("REDIS_URL", s.cfg.RedisURL, s.log, redisconn.CheckURL)
	if err != nil {
		return nil, err
	}
	s.redisURL = url
	bounded, cancel := context.WithTimeout(ctx, firstCheckTimeout)
	defer cancel()
	fsync := redisconn.NoFsync
	if s.takesClaims { // books must be written whatever can be promised
		fsync = s.fsync()
	}
	rdb, err := redisconn.Detect(bounded, url, fsync)
	if err != nil {
		return nil, config.Refuse("REDIS_URL", "%w", err)
	}
	return rdb, nil
}

// allowDBDown is for a role that has work without MySQL: it starts, and uses MySQL from when it is there and was checked.
func allowDBDown(s *stack) { s.allowDBDown = true }

// takesClaims is for a role with the API: it stores subjects of claims.
func takesClaims(s *stack) { s.takesClaims = true }

func (s *stack) openSQL(ctx context.Context) error {
	if s.cfg.MySQLDSN == "" {
		return s.openSQLite(ctx)
	}
	return s.openGated(ctx, "MYSQL_DSN", s.cfg.MySQLDSN, s.checkStore)
}

// openGated opens the MySQL of a setting. A role may start while it is away.
func (s *stack) openGated(ctx context.Context, setting, dsn string, check func(context.Context, *gorm.DB) error) error {
	s.where = "Redis and MySQL as configured"
	now, err := s.cfg.Renewed(setting, dsn, s.log, sqlstore.CheckDSN)
	if err != nil {
		return err
	}
	db, gate, err := sqlstore.OpenGated(sqlstore.Config{DSN: dsn, Renewed: now, Conns: s.cfg.MySQLConns, Logger: s.log}, check)
	if err != nil {
		return config.RefuseIf(err, sqlstore.ErrConfig, setting)
	}
	s.use(db)
	err = gate.Try(ctx)
	if s.allowDBDown && errors.Is(err, sqlstore.ErrAway) {
		s.gate = gate
		s.log.Warn("MySQL is away: claims of campaigns that Redis holds go on, all else waits or is refused until it is there", "error", err)
		return nil
	}
	return err
}

func (s *stack) openSQLite(ctx context.Context) error {
	dir, err := s.sqliteFolder()
	if err != nil {
		return err
	}
	s.where = "embedded Redis (memory) and SQLite (" + dir + "): for a look, not for real claims"
	db, err := openDB(ctx, "DATA_DIR", sqlstore.Config{Path: filepath.Join(dir, "dibs.db"), Logger: s.log})
	if err != nil {
		return err
	}
	s.use(db)
	pool, err := db.DB()
	if err != nil {
		return fmt.Errorf("cmd: %w", err)
	}
	if _, err := migrations.Up(ctx, pool, db.Name()); err != nil {
		return err
	}
	if err := s.checkStore(ctx, db); err != nil || s.cfg.RedisURL != "" {
		return err
	}
	return writer.BeginAnew(ctx, db)
}

func (s *stack) use(db *gorm.DB) {
	s.db = db
	s.closers = append(s.closers, func() { _ = sqlstore.Close(db) })
}

// checkStore refuses an older schema, and data that was made with another number of partitions.
func (s *stack) checkStore(ctx context.Context, db *gorm.DB) error {
	if err := checkSchema(ctx, db); err != nil {
		return err
	}
	if err := sqlstore.CheckReads(ctx, db); errors.Is(err, sqlstore.ErrStaleReads) { // a MySQL that takes no writes now can't be asked
		return config.Refuse("MYSQL_DSN", "%w", err)
	}
	err := campaigns.CheckPartitions(ctx, db, s.cfg.Partitions)
	if err != nil || !s.takesClaims {
		return config.RefuseIf(err, campaigns.ErrPartitions, "PARTITIONS")
	}
	return config.RefuseIf(campaigns.CheckSubjectSecret(ctx, db, s.cfg.SubjectSecret), campaigns.ErrSubjectSecret, "SUBJECT_SECRET")
}

// checkSchema refuses an older schema.
func checkSchema(ctx context.Context, db *gorm.DB) error {
	pool, err := db.DB()
	if err != nil {
		return fmt.Errorf("cmd: %w", err)
	}
	return migrations.Check(ctx, pool, db.Name())
}

// openDB opens a database; a DSN that can't be is the setting's fault.
func openDB(ctx context.Context, setting string, cfg sqlstore.Config) (*gorm.DB, error) {
	db, err := sqlstore.Open(ctx, cfg)
	return db, config.RefuseIf(err, sqlstore.ErrConfig, setting)
}

// sqliteFolder has the file of the embedded database. Embedded Redis keeps nothing, so what an earlier
// run left there can be read but not claimed from; without a folder of the user's it is a temporary one.
func (s *stack) sqliteFolder() (dir string, err error) {
	if s.cfg.DataDir != "" {
		if err := os.MkdirAll(s.cfg.DataDir, 0o700); err != nil {
			return "", config.Refuse("DATA_DIR", "%w", err)
		}
		return s.cfg.DataDir, nil
	}
	dir, err = os.MkdirTemp("", "dibs-")
	if err != nil {
		return "", fmt.Errorf("cmd: %w", err)
	}
	s.closers = append(s.closers, func() { _ = os.RemoveAll(dir) })
	return dir, nil
}

func (s *stack) makeParts(context.Context) error {
	s.campaigns = campaigns.New(s.db, s.scripts, s.log)
	s.loader = lots.New(s.db, s.scripts, s.log, s.settle(), s.registry)
	s.mover = shards.New(s.db, s.scripts, s.loader, s.registry)
	s.campaigns.SettleBy(s.mover)
	s.relay = resolve.NewRelay(s.db, s.scripts, s.registry)
	s.relay.LoadBy(s.loader)
	s.resolver = resolve.NewResolver(s.db, s.relay, s.log)
	return nil
}

// settle is how long processes may take to report what they saw of lots. Of an embedded Redis no other process saw anything.
func (s *stack) settle() time.Duration {
	if s.cfg.RedisURL == "" {
		return 0
	}
	return lots.Settle
}
