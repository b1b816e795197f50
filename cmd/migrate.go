package cmd

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"dibs/config"
	"dibs/internal/sqlstore"
	"dibs/migrations"

	"github.com/spf13/cobra"
)

// migrateTimeout bounds all migrations together: they may rewrite large tables.
const migrateTimeout = time.Hour

func newMigrate(env Env) *cobra.Command {
	return command(env, cobra.Command{
		Use:     "migrate",
		Short:   "Bring the MySQL schema up to date, that of DIBS_FINANCE_DSN too; several may run at once",
		Example: "  DIBS_MYSQL_DSN='root@tcp(127.0.0.1:3306)/dibs' dibs migrate",
	}, func(ctx context.Context, c *cobra.Command, cfg *config.Config) error {
		if cfg.BooksDSN() == "" {
			return fmt.Errorf("%w: %sMYSQL_DSN: is not set; embedded SQLite is migrated when it is opened", config.ErrConfig, config.Prefix)
		}
		ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
		defer cancel()
		log := newLogger(cfg, env.Stderr)
		if cfg.MySQLDSN != "" {
			if err := migrate(ctx, c, "MYSQL_DSN", cfg.MySQLDSN, log); err != nil {
				return err
			}
		}
		if cfg.FinanceDSN == "" || cfg.FinanceDSN == cfg.MySQLDSN {
			return nil
		}
		c.Println("the finance service's database:")
		return migrate(ctx, c, "FINANCE_DSN", cfg.FinanceDSN, log)
	})
}

// migrate brings one database up to date.
func migrate(ctx context.Context, c *cobra.Command, setting, dsn string, log *slog.Logger) error {
	db, err := openDB(ctx, setting, sqlstore.Config{DSN: dsn, ReadTimeout: migrateTimeout, Logger: log})
	if err != nil {
		return err
	}
	defer func() { _ = sqlstore.Close(db) }()
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
}
