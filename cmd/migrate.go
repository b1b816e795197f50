package cmd

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"dibs/config"
	"dibs/migrations"
	"dibs/syncer"
)

// migrateTimeout bounds all migrations together: they may rewrite large tables.
const migrateTimeout = time.Hour

func newMigrate(env Env) *cobra.Command {
	return command(env, cobra.Command{
		Use:     "migrate",
		Short:   "Bring the MySQL schema up to date; several may run at once",
		Example: "  DIBS_MYSQL_DSN='root@tcp(127.0.0.1:3306)/dibs' dibs migrate",
	}, func(ctx context.Context, c *cobra.Command, cfg *config.Config) error {
		if cfg.MySQLDSN == "" {
			return fmt.Errorf("%w: %sMYSQL_DSN: is not set; embedded SQLite is migrated when it is opened", config.ErrConfig, config.Prefix)
		}
		ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
		defer cancel()
		db, err := openDB(ctx, syncer.StoreConfig{DSN: cfg.MySQLDSN, ReadTimeout: migrateTimeout, Logger: newLogger(cfg, env.Stderr)})
		if err != nil {
			return err
		}
		defer func() { _ = syncer.Close(db) }()
		pool, err := db.DB()
		if err != nil {
			return fmt.Errorf("cmd: %w", err)
		}
		applied, err := migrations.Up(ctx, pool, db.Name())
		if err != nil {
			return err
		}
		for _, name := range applied {
			c.Println("applied " + name)
		}
		if len(applied) == 0 {
			c.Println("nothing to do, the schema is up to date")
		}
		return nil
	})
}

// version is what the binary was built from.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "dev"
}
