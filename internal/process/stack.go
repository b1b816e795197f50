package process

import (
	"cmp"
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
	"dibs/internal/installation"
	"dibs/internal/migrations"
	"dibs/internal/otlp"
	"dibs/internal/process/metrics"
	"dibs/internal/pulse"
	"dibs/internal/redisconn"
	"dibs/internal/softstate"
	"dibs/internal/sqlstore"
	"dibs/internal/tracing"
	"dibs/internal/webhooks"
	"dibs/lua"
	"dibs/syncer/campaigns"
	"dibs/syncer/lots"
	"dibs/syncer/offset"
	"dibs/syncer/resolve"
	"dibs/syncer/settings"
	"dibs/syncer/shards"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"
)

const startTimeout = 30 * time.Second // of a process that doesn't wait; else each check has its own

// Options are what a process needs.
type Options struct {
	Config   *config.Config
	Logger   *slog.Logger
	Environ  []string             // "NAME=value"
	Registry *prometheus.Registry // gets the metrics; nil creates one

	IsFinance   bool // it needs Redis and the finance service's own database
	TakesClaims bool // it has the API and stores subjects of claims

	Listening func(addr string) // called with the API's address once it listens; may be nil

	endpoints func() webhooks.Endpoints // of the webhooks
	// it may start while a server is unreachable, and checks it later
	waits bool
}

// Stack is a process' open servers, and what all roles use of them.
type Stack struct {
	Options

	DB        *gorm.DB
	Redis     redis.UniversalClient
	Scripts   *lua.Scripts
	Campaigns *campaigns.Repository
	Loader    *lots.Loader
	Where     string // the servers, for people

	tracer   *tracing.Tracer // nil: no traces
	redisURL func() string   // current value
	shared   *softstate.Store
	mover    *shards.Mover
	relay    *resolve.Relay
	resolver *resolve.Resolver

	installation     installation.Check
	sameInstallation chan struct{} // closed once both were found to be of one installation

	later []func(context.Context) error // checks of Redis that failed at the start
	// if MySQL was unreachable at the start, else nil
	gate  *sqlstore.Gate
	parts *parts                    // the servers, for probes and metrics
	pulse pulse.Heartbeat           // of the loops of consumer, syncer and finance
	end   atomic.Pointer[time.Time] // the deadline once the process stops

	redisNotPersistent atomic.Bool            // a Redis has no persistence
	aclAdvice          atomic.Pointer[string] // about a Redis that might not load its file

	closers []func() // in the order of opening
}

// Open connects to both servers, or to embedded ones if none are set. It
// refuses what would fail later: an older schema, another number of
// partitions, a Redis that evicts.
func Open(ctx context.Context, o Options) (*Stack, error) {
	o.Registry = cmp.Or(o.Registry, metrics.New())
	s := &Stack{Options: o}
	check := s.Config.CheckServers
	opening := []func(context.Context) error{
		s.openTraces, s.openRedis, s.openSQL, s.makeParts, s.checkInstallation, s.checkDurability,
	}
	if s.IsFinance {
		check = s.Config.CheckFinance
		opening = []func(context.Context) error{s.openTraces, s.openRedis, s.openBooks, s.checkStreams, s.checkInstallation}
	}
	if err := check(); err != nil {
		return nil, err
	}
	if !s.waits {
		bounded, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		ctx = bounded
	}
	for _, open := range opening {
		if err := open(ctx); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Close closes in reverse order. Call it once.
func (s *Stack) Close() {
	for _, v := range slices.Backward(s.closers) {
		v()
	}
}

// openTraces sends spans as OTEL_* say, if they are set.
func (s *Stack) openTraces(ctx context.Context) error {
	provider, err := otlp.Open(ctx, s.Environ, build.Of().Version, s.Logger)
	if err != nil {
		return fmt.Errorf("%w: %w", config.ErrConfig, err)
	}
	if provider == nil {
		return nil
	}
	s.tracer = tracing.New(provider)
	s.closers = append(s.closers, func() {
		ctx, cancel := context.WithDeadline(context.Background(), s.before(2*time.Second))
		defer cancel()
		_ = provider.Shutdown(ctx) // losses are logged
	})
	return nil
}

func (s *Stack) openRedis(ctx context.Context) error {
	rdb, err := s.connectRedis(ctx)
	if err != nil {
		return err
	}
	s.Redis = rdb
	s.closers = append(s.closers, func() { _ = rdb.Close() })
	s.Scripts, err = lua.New(rdb, lua.Options{
		Partitions: s.Config.Partitions, Durability: s.Config.Durability, Observe: metrics.ObserveScripts(s.Registry), CheckServer: s.checkFsync,
	})
	if err != nil {
		return fmt.Errorf("process: %w", err)
	}
	s.shared = softstate.New(rdb, s.Scripts)
	if s.Config.RedisURL == "" {
		return nil
	}
	return s.orLater(ctx, func(ctx context.Context) error {
		// the check of its connections
		return config.RefuseIf(s.checkRedis(ctx), redisconn.ErrFsync, "DURABILITY")
	})
}

func (s *Stack) connectRedis(ctx context.Context) (redis.UniversalClient, error) {
	if s.Config.RedisURL == "" {
		server, end, err := redisconn.Embed()
		if err != nil {
			return nil, fmt.Errorf("embedded redis: %w", err)
		}
		s.closers = append(s.closers, end)
		return redisconn.Connect("redis://" + server.Addr())
	}
	url, err := s.Config.Renewed("REDIS_URL", s.Config.RedisURL, s.Logger, redisconn.CheckURL)
	if err != nil {
		return nil, err
	}
	s.redisURL = url
	bounded, cancel := context.WithTimeout(ctx, firstCheckTimeout)
	defer cancel()
	fsync := redisconn.NoFsync
	if s.TakesClaims { // other commands only need to write
		fsync = s.fsync()
	}
	rdb, err := redisconn.Detect(bounded, url, fsync)
	if err != nil {
		return nil, config.Refuse("REDIS_URL", "%w", err)
	}
	return rdb, nil
}

func (s *Stack) openSQL(ctx context.Context) error {
	if s.Config.MySQLDSN == "" {
		return s.openSQLite(ctx)
	}
	return s.openGated(ctx, "MYSQL_DSN", s.Config.MySQLDSN, s.checkStore)
}

// openGated opens a setting's MySQL. A role may start while it is
// unreachable.
func (s *Stack) openGated(ctx context.Context, setting, dsn string, check func(context.Context, *gorm.DB) error) error {
	s.Where = "Redis and MySQL as configured"
	now, err := s.Config.Renewed(setting, dsn, s.Logger, sqlstore.CheckDSN)
	if err != nil {
		return err
	}
	db, gate, err := sqlstore.OpenGated(sqlstore.Config{DSN: dsn, Renewed: now, Conns: s.Config.MySQLConns, Logger: s.Logger}, check)
	if err != nil {
		return config.RefuseIf(err, sqlstore.ErrConfig, setting)
	}
	s.use(db)
	err = s.tryGate(ctx, gate)
	if s.waits && errors.Is(err, sqlstore.ErrAway) {
		s.gate = gate
		s.Logger.Warn("MySQL is away: claims of campaigns that Redis holds go on, all else waits or is refused until it is there", "error", err)
		return nil
	}
	return err
}

// tryGate tries once, and not for long if it may be tried again.
func (s *Stack) tryGate(ctx context.Context, gate *sqlstore.Gate) error {
	if s.waits {
		bounded, cancel := context.WithTimeout(ctx, firstCheckTimeout)
		defer cancel()
		ctx = bounded
	}
	return gate.Try(ctx)
}

func (s *Stack) openSQLite(ctx context.Context) error {
	dir, err := s.sqliteFolder()
	if err != nil {
		return err
	}
	s.Where = "embedded Redis (memory) and SQLite (" + dir + "): to try it, not for real claims"
	if err := s.lockFolder(ctx, dir); err != nil {
		return err
	}
	db, err := OpenDB(ctx, "DATA_DIR", sqlstore.Config{Path: filepath.Join(dir, "dibs.db"), Logger: s.Logger})
	if err != nil {
		return err
	}
	s.use(db)
	pool, err := db.DB()
	if err != nil {
		return fmt.Errorf("process: %w", err)
	}
	if _, err := migrations.Up(ctx, pool, db.Name()); err != nil {
		return err
	}
	if err := s.checkStore(ctx, db); err != nil || s.Config.RedisURL != "" {
		return err
	}
	return offset.Reset(ctx, db)
}

func (s *Stack) use(db *gorm.DB) {
	s.DB = db
	s.closers = append(s.closers, func() { _ = sqlstore.Close(db) })
}

// checkStore refuses an older schema, and data with another number of
// partitions.
func (s *Stack) checkStore(ctx context.Context, db *gorm.DB) error {
	if err := CheckSchema(ctx, db); err != nil {
		return err
	}
	// a MySQL that refuses writes now can't be checked
	if err := sqlstore.CheckReads(ctx, db); errors.Is(err, sqlstore.ErrStaleReads) {
		return config.Refuse("MYSQL_DSN", "%w", err)
	}
	err := settings.CheckPartitions(ctx, db, s.Config.Partitions)
	if err != nil || !s.TakesClaims {
		return config.RefuseIf(err, settings.ErrPartitions, "PARTITIONS")
	}
	return config.RefuseIf(settings.CheckSubjectSecret(ctx, db, s.Config.SubjectSecret), settings.ErrSubjectSecret, "SUBJECT_SECRET")
}

// CheckSchema refuses an older schema.
func CheckSchema(ctx context.Context, db *gorm.DB) error {
	pool, err := db.DB()
	if err != nil {
		return fmt.Errorf("process: %w", err)
	}
	return migrations.Check(ctx, pool, db.Name())
}

// OpenDB opens a database, and blames the setting for an invalid DSN.
func OpenDB(ctx context.Context, setting string, cfg sqlstore.Config) (*gorm.DB, error) {
	db, err := sqlstore.Open(ctx, cfg)
	return db, config.RefuseIf(err, sqlstore.ErrConfig, setting)
}

// lockFolder refuses a folder that another process has: each has an embedded
// Redis of its own, and would sell the same units.
func (s *Stack) lockFolder(ctx context.Context, dir string) error {
	release, err := sqlstore.LockFile(ctx, filepath.Join(dir, "dibs.lock"))
	switch {
	case errors.Is(err, sqlstore.ErrInUse):
		return config.Refuse("DATA_DIR", "another process uses %s: give each a folder of its own", dir)
	case err != nil:
		return config.Refuse("DATA_DIR", "%w", err)
	}
	s.closers = append(s.closers, release)
	return nil
}

// sqliteFolder is the folder of the embedded database. The embedded Redis
// keeps nothing, so an earlier run's campaigns can be read, but not claimed
// from. Without a configured folder it is a temporary one.
func (s *Stack) sqliteFolder() (dir string, err error) {
	if s.Config.DataDir != "" {
		if err := os.MkdirAll(s.Config.DataDir, 0o700); err != nil {
			return "", config.Refuse("DATA_DIR", "%w", err)
		}
		return s.Config.DataDir, nil
	}
	dir, err = os.MkdirTemp("", "dibs-")
	if err != nil {
		return "", fmt.Errorf("process: %w", err)
	}
	s.closers = append(s.closers, func() { _ = os.RemoveAll(dir) })
	return dir, nil
}

func (s *Stack) makeParts(context.Context) error {
	s.Campaigns = campaigns.New(s.DB, s.Scripts, s.Logger)
	s.Loader = lots.New(s.DB, s.Scripts, s.Logger, s.settle(), s.Registry)
	s.mover = shards.New(s.DB, s.Scripts, s.Loader, s.Registry)
	s.Campaigns.SettleBy(s.mover)
	s.relay = resolve.NewRelay(s.DB, s.Scripts, s.Registry)
	s.relay.LoadBy(s.Loader)
	s.resolver = resolve.NewResolver(s.DB, s.relay, s.Logger)
	return metrics.RegisterPools(s.Registry, s.DB, s.Redis)
}

// settle is how long processes may take to report what they saw of lots. No
// other process sees an embedded Redis.
func (s *Stack) settle() time.Duration {
	if s.Config.RedisURL == "" {
		return 0
	}
	return lots.Settle
}
