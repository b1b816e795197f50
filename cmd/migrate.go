package cmd

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dibs/internal/config"
	"dibs/internal/migrations"
	"dibs/internal/printer"
	"dibs/internal/process"
	"dibs/internal/sqlstore"
	"dibs/syncer/settings"

	"github.com/spf13/cobra"
)

const (
	migrateTimeout  = time.Hour       // for all migrations, which may rewrite large tables
	schemaLockWait  = 5 * time.Second // later statements wait as long
	schemaLockPause = 2 * time.Second // in which those statements run
)

func newMigrate(env Env) *cobra.Command {
	var status bool
	var form printer.Form
	c := command(env, cobra.Command{
		Use:     "migrate",
		Short:   "Bring the MySQL schema up to date, that of DIBS_FINANCE_DSN too; several may run at once",
		Example: "  DIBS_MYSQL_DSN='root@tcp(127.0.0.1:3306)/dibs' dibs migrate\n  dibs migrate --status",
	}, func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error {
		if cfg.BooksDSN() == "" {
			return config.Refuse("MYSQL_DSN", "is not set; embedded SQLite is migrated when it is opened")
		}
		ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
		defer cancel()
		log := newLogger(cfg, env.Stderr)
		out := printer.New(env.Stdout, form, migrationView)
		if cfg.MySQLDSN != "" {
			if err := migrate(ctx, out, "MYSQL_DSN", cfg.MySQLDSN, status, log, cfg.Name); err != nil {
				return err
			}
		}
		if cfg.FinanceDSN == "" || cfg.FinanceDSN == cfg.MySQLDSN {
			return nil
		}
		return migrate(ctx, out, "FINANCE_DSN", cfg.FinanceDSN, status, log, "")
	})
	c.Flags().BoolVar(&status, "status", false, "list the migrations, and which of them the database has; change nothing")
	form.Add(c)
	return c
}

type migration struct {
	State     string `json:"state"`     // pending or applied
	Migration string `json:"migration"` // its file
	Database  string `json:"database"`  // the setting that names it
}

var migrationView = printer.View[migration]{
	Header: []string{"state", "migration", "database"},
	Rows:   func(m *migration, row func(...any)) { row(m.State, m.Migration, m.Database) },
}

// migrate migrates one database, or lists its migrations. If madeBy
// isn't "", the database gets an installation id.
func migrate(ctx context.Context, out *printer.List[migration], setting, dsn string, status bool, log *slog.Logger, madeBy string) error {
	db, err := process.OpenDB(ctx, setting, sqlstore.Config{DSN: dsn, ReadTimeout: migrateTimeout,
		SchemaLockWait: schemaLockWait, Logger: log})
	if err != nil {
		return err
	}
	defer func() { _ = sqlstore.Close(db) }()
	pool, err := db.DB()
	if err != nil {
		return fmt.Errorf("cmd: %w", err)
	}
	if status {
		all, err := migrations.Status(ctx, pool, db.Name())
		for _, m := range all {
			state := "pending"
			if m.Applied {
				state = "applied"
			}
			err = errors.Join(err, out.Add(migration{state, m.Name, config.Prefix + setting}))
		}
		return errors.Join(err, out.End())
	}
	applied, err := migrateBetweenWriters(ctx, pool, db.Name(), log)
	for _, name := range applied {
		err = errors.Join(err, out.Add(migration{"applied", name, config.Prefix + setting}))
	}
	if len(applied) > 0 {
		err = errors.Join(err, out.End())
	}
	if err != nil {
		return err
	}
	if len(applied) == 0 && out.Form == printer.Table {
		printer.Printf(out.W, "nothing to do, the schema is up to date\n")
	}
	if madeBy != "" {
		_, err = settings.Installation(ctx, db, madeBy)
	}
	return err
}

// migrateBetweenWriters applies the migrations. If a statement waits
// for a table in vain, it is retried after a pause in which others may
// use the table.
func migrateBetweenWriters(ctx context.Context, pool *sql.DB, dialect string, log *slog.Logger) (applied []string, err error) {
	for {
		done, err := migrations.Up(ctx, pool, dialect)
		applied = append(applied, done...)
		if !sqlstore.IsLockWait(err) {
			return applied, err
		}
		log.WarnContext(ctx, "a migration waits for a transaction that uses a table; it is tried again. SHOW PROCESSLIST names open"+
			" transactions: end that one, or wait for a dump to end", "error", err)
		select {
		case <-ctx.Done():
			return applied, fmt.Errorf("cmd: migrate: %w: %w", context.Cause(ctx), err)
		case <-time.After(schemaLockPause):
		}
	}
}
