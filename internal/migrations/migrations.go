// Package migrations has Dibs' schema as plain SQL, for MySQL
// and SQLite, and applies it.
//
// DBAs should read the files before running them, so each column
// has a comment. A test checks that both dialects give the same
// tables, columns and keys.
//
// An interrupted migration is rerun from its first line, because MySQL's DDL
// is not transactional. So each statement may run twice, or is the only one
// of its file and changes one table. The server does such a change completely
// or not at all, and Up detects that it was done.
package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

// The dialects, as gorm names them.
const (
	MySQL  = "mysql" // and MariaDB
	SQLite = "sqlite"
)

const (
	lockProbeInterval = 200 * time.Millisecond
	lockProbesMax     = 1500 // five minutes of waiting for another migrator
)

var (
	// ErrOld means that the schema is older than this program. The
	// message has both versions and the command to run.
	ErrOld = errors.New("migrations: old schema")
	// ErrDevelopment means that the schema is of a version before
	// the first release. Nothing was changed.
	ErrDevelopment = errors.New("migrations: schema of a development version")
	// ErrDialect means that there is no schema for that kind of database.
	ErrDialect = errors.New("migrations: unknown dialect")
)

// baseline is the first migration's number. Lower ones were of
// development versions.
const baseline = 100

//go:embed mysql/*.sql sqlite/*.sql
var files embed.FS

// Up migrates the schema to this program's version and returns
// the names of the migrations it ran, even if a later one
// failed. It is safe to call concurrently: on MySQL a lock row
// serializes the callers. Errors: ErrDialect, ErrDevelopment.
func Up(ctx context.Context, db *sql.DB, dialect string) (applied []string, err error) {
	dir, err := folder(dialect)
	if err != nil {
		return nil, err
	}
	return up(ctx, db, dialect, dir)
}

func up(ctx context.Context, db *sql.DB, dialect string, dir fs.FS) (applied []string, err error) {
	provider, err := newProvider(db, dialect, dir)
	if err != nil {
		return nil, err
	}
	if _, err := version(ctx, db, dialect); err != nil {
		return nil, err
	}
	for {
		results, err := provider.Up(ctx)
		partial, isPartial := errors.AsType[*goose.PartialError](err)
		if isPartial {
			results = partial.Applied
		}
		for _, r := range results {
			applied = append(applied, r.Source.Path)
		}
		if isPartial && isThere(partial.Err) {
			err = record(ctx, db, partial.Failed.Source.Version)
			if err == nil {
				applied = append(applied, partial.Failed.Source.Path)
				continue
			}
		}
		if err != nil {
			return applied, fmt.Errorf("migrations: %w", err)
		}
		return applied, nil
	}
}

// isThere reports whether a statement failed because an earlier
// attempt created its column or index but died before recording
// it. Such a statement is the only one of its file.
func isThere(err error) bool {
	const duplicateColumn, duplicateKey = 1060, 1061
	refused, is := errors.AsType[*mysql.MySQLError](err)
	return is && (refused.Number == duplicateColumn || refused.Number == duplicateKey)
}

func record(ctx context.Context, db *sql.DB, number int64) error {
	store, err := database.NewStore(goose.DialectMySQL, goose.DefaultTablename)
	if err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	return store.Insert(ctx, db, database.InsertRequest{Version: number}) //nolint:wrapcheck // the caller does
}

// Migration is a file of the schema, and whether it was applied.
type Migration struct {
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
}

// Status lists this program's migrations, oldest first. It
// writes nothing. Errors: ErrDialect, ErrDevelopment.
func Status(ctx context.Context, db *sql.DB, dialect string) ([]Migration, error) {
	at, err := version(ctx, db, dialect)
	if err != nil {
		return nil, err
	}
	numbers, err := numbered(dialect)
	if err != nil {
		return nil, err
	}
	var all []Migration
	for _, one := range numbers {
		all = append(all, Migration{Name: one.name, Applied: one.number <= at})
	}
	return all, nil
}

// Check returns wrapped ErrOld or ErrDevelopment, unless the schema is at
// this program's version or newer. It writes nothing.
func Check(ctx context.Context, db *sql.DB, dialect string) error {
	need, err := needed(dialect)
	if err != nil {
		return err
	}
	at, err := version(ctx, db, dialect)
	if err != nil {
		return err
	}
	if at < need {
		return fmt.Errorf("%w: schema is at version %d, this program needs %d: run `dibs migrate`", ErrOld, at, need)
	}
	return nil
}

func newProvider(db *sql.DB, dialect string, dir fs.FS) (*goose.Provider, error) {
	gooseDialect := goose.DialectSQLite3
	opts := []goose.ProviderOption(nil)
	if dialect == MySQL {
		locker, err := lock.NewMySQLTableLocker(lock.WithTableLockTimeout(lockProbeInterval, lockProbesMax))
		if err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
		gooseDialect = goose.DialectMySQL
		opts = append(opts, goose.WithLocker(locker))
	}
	provider, err := goose.NewProvider(gooseDialect, db, dir, opts...)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return provider, nil
}

func folder(dialect string) (fs.FS, error) {
	if dialect != MySQL && dialect != SQLite {
		return nil, fmt.Errorf("%w: %q", ErrDialect, dialect)
	}
	dir, err := fs.Sub(files, dialect)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return dir, nil
}

type file struct {
	name   string
	number int64
}

func numbered(dialect string) (all []file, err error) {
	dir, err := folder(dialect)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(dir, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	for _, name := range names {
		n, err := goose.NumericComponent(name)
		if err != nil {
			return nil, fmt.Errorf("migrations: %s: %w", name, err)
		}
		all = append(all, file{name, n})
	}
	slices.SortFunc(all, func(a, b file) int { return cmp.Compare(a.number, b.number) })
	return all, nil
}

func needed(dialect string) (int64, error) {
	all, err := numbered(dialect)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return all[len(all)-1].number, nil
}

// version reads goose's table; 0 without it. Errors: ErrDevelopment.
func version(ctx context.Context, db *sql.DB, dialect string) (int64, error) {
	query := "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?"
	if dialect == SQLite {
		query = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
	}
	var tables int
	if err := db.QueryRowContext(ctx, query, goose.DefaultTablename).Scan(&tables); err != nil {
		return 0, fmt.Errorf("migrations: schema version: %w", err)
	}
	if tables == 0 {
		return 0, nil
	}
	var at int64
	query = "SELECT COALESCE(MAX(version_id), 0) FROM " + goose.DefaultTablename + " WHERE is_applied = 1"
	if err := db.QueryRowContext(ctx, query).Scan(&at); err != nil {
		return 0, fmt.Errorf("migrations: schema version: %w", err)
	}
	if at > 0 && at < baseline {
		return at, fmt.Errorf("%w: it is at version %d, and releases begin at %d: create an empty database and run `dibs migrate` there;"+
			" data of the old one is not carried over", ErrDevelopment, at, baseline)
	}
	return at, nil
}
