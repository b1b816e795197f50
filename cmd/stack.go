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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"

	"dibs/config"
	"dibs/internal/embedded"
	"dibs/lua"
	"dibs/migrations"
	"dibs/syncer"
)

// startTimeout bounds the checks before a role starts.
const startTimeout = 30 * time.Second

// stack is what a process holds open: both servers, and what is made of them for every role.
type stack struct {
	cfg      *config.Config
	log      *slog.Logger
	registry *prometheus.Registry

	rdb       redis.UniversalClient
	scripts   *lua.Scripts
	db        *gorm.DB
	dialect   string
	campaigns *syncer.Campaigns
	hydrator  *syncer.Hydrator
	relay     *syncer.Relay
	resolver  *syncer.Resolver

	forgets atomic.Bool // a Redis keeps no file of what it is told

	where   string   // the servers, for people
	closers []func() // in the order of opening
}

// openStack connects to both servers, embedded ones if none are set, and refuses what could not work later: an older
// schema, another number of partitions, a Redis that evicts.
func openStack(ctx context.Context, cfg *config.Config, log *slog.Logger) (*stack, error) {
	if err := cfg.CheckServers(); err != nil {
		return nil, err
	}
	s := &stack{cfg: cfg, log: log, registry: prometheus.NewRegistry()}
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, open := range []func(context.Context) error{s.openRedis, s.openSQL, s.checkPartitions, s.makeParts} {
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

func (s *stack) openRedis(ctx context.Context) error {
	url := s.cfg.RedisURL
	if url == "" {
		server, err := embedded.StartRedis()
		if err != nil {
			return err
		}
		s.closers = append(s.closers, server.Close)
		url = server.URL()
	}
	rdb, err := lua.Connect(url)
	if err != nil {
		return fmt.Errorf("%w: %sREDIS_URL: %w", config.ErrConfig, config.Prefix, err)
	}
	s.rdb = rdb
	s.closers = append(s.closers, func() { _ = rdb.Close() })
	if s.cfg.RedisURL == "" {
		return nil
	}
	return s.checkRedis(ctx)
}

func (s *stack) openSQL(ctx context.Context) error {
	path, err := s.sqlitePath()
	if err != nil {
		return err
	}
	db, err := openDB(ctx, "MYSQL_DSN", syncer.StoreConfig{DSN: s.cfg.MySQLDSN, Path: path, Logger: s.log})
	if err != nil {
		return err
	}
	s.db, s.dialect = db, db.Name()
	sqlDB, err := db.DB()
	if err != nil {
		return fmt.Errorf("cmd: %w", err)
	}
	s.closers = append(s.closers, func() { _ = sqlDB.Close() })
	if s.cfg.MySQLDSN == "" {
		_, err = migrations.Up(ctx, sqlDB, s.dialect)
		s.where = "embedded Redis (memory) and SQLite (" + filepath.Dir(path) + "): for a look, not for real claims"
		return err
	}
	s.where = "Redis and MySQL as configured"
	return migrations.Check(ctx, sqlDB, s.dialect)
}

// openDB opens a database; a DSN that can't be is the setting's fault.
func openDB(ctx context.Context, setting string, cfg syncer.StoreConfig) (*gorm.DB, error) {
	db, err := syncer.Open(ctx, cfg)
	if errors.Is(err, syncer.ErrConfig) {
		return nil, fmt.Errorf("%w: %s%s: %w", config.ErrConfig, config.Prefix, setting, err)
	}
	return db, err
}

// sqlitePath is the file of the embedded database. Embedded Redis keeps nothing, so what an earlier run left there can be
// read but not claimed from; without a folder of the user's it is a temporary one.
func (s *stack) sqlitePath() (string, error) {
	if s.cfg.MySQLDSN != "" {
		return "", nil
	}
	dir := s.cfg.DataDir
	if dir == "" {
		made, err := os.MkdirTemp("", "dibs-")
		if err != nil {
			return "", fmt.Errorf("cmd: %w", err)
		}
		s.closers = append(s.closers, func() { _ = os.RemoveAll(made) })
		dir = made
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("%w: %sDATA_DIR: %w", config.ErrConfig, config.Prefix, err)
	}
	return filepath.Join(dir, "dibs.db"), nil
}

func (s *stack) checkPartitions(ctx context.Context) error {
	return refusedPartitions(syncer.CheckPartitions(ctx, s.db, s.cfg.Partitions))
}

// refusedPartitions names the setting, unless it is the database that failed.
func refusedPartitions(err error) error {
	if errors.Is(err, syncer.ErrPartitions) {
		return fmt.Errorf("%w: %sPARTITIONS: %w", config.ErrConfig, config.Prefix, err)
	}
	return err
}

func (s *stack) makeParts(context.Context) error {
	scripts, err := lua.New(s.rdb, lua.Options{
		Partitions: s.cfg.Partitions, Durability: s.cfg.Durability, Observe: observeScripts(s.registry),
	})
	if err != nil {
		return fmt.Errorf("cmd: %w", err)
	}
	s.scripts = scripts
	s.campaigns = syncer.NewCampaigns(s.db, scripts, s.log)
	s.hydrator, err = syncer.NewHydrator(syncer.HydratorConfig{DB: s.db, Scripts: scripts, Logger: s.log, Registerer: s.registry})
	if err != nil {
		return err
	}
	s.relay, err = syncer.NewRelay(syncer.RelayConfig{DB: s.db, Scripts: scripts, Logger: s.log, Registerer: s.registry})
	if err != nil {
		return err
	}
	s.resolver = syncer.NewResolver(s.db, s.relay, s.log)
	return nil
}
