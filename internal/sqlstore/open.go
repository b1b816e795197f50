package sqlstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"dibs/internal/address"
	"dibs/internal/tlsfiles"

	"github.com/glebarez/sqlite"
	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
)

// DefaultConns is the default limit of connections to MySQL.
const DefaultConns = 16

const (
	connsSQLite     = 4
	slowStatement   = time.Second // slower statements are logged
	dialTimeout     = 5 * time.Second
	signInTimes     = 6           // a sign-in may take so many times as long as a dial
	ioTimeout       = time.Minute // for callers without a deadline
	connLifetime    = 5 * time.Minute
	sqliteBusyMs    = 10_000
	lockWaitSeconds = 10 // the server's default, 50, would block a whole flush
)

// ErrConfig is wrapped by every error about a Config, in this package and in
// those that build on it. The message names the field.
var ErrConfig = errors.New("bad configuration")

// Config selects the database. Logger and one of DSN and Path are required.
type Config struct {
	DSN string // MySQL or MariaDB, in go-sql-driver's form
	// Renewed returns the current DSN. New connections take their user and
	// password from it. CheckDSN must accept it. Nil means DSN.
	Renewed func() string
	Path    string // file of an embedded SQLite, created if missing

	Conns int // connection limit
	// longest wait for bytes from the server; migrations of large
	// tables need more
	ReadTimeout time.Duration

	// SchemaLockWait limits how long a statement waits for tables in
	// use; 0 leaves it to the server. While a schema change waits,
	// later statements queue behind it.
	SchemaLockWait time.Duration

	Logger *slog.Logger
}

// WithDefaults returns a copy with unset fields filled in.
func (c Config) WithDefaults() Config {
	conns := DefaultConns
	if c.Path != "" {
		conns = connsSQLite
	}
	c.Conns = cmp.Or(c.Conns, conns)
	c.ReadTimeout = cmp.Or(c.ReadTimeout, ioTimeout)
	return c
}

// Validate returns nil, or ErrConfig wrapped with the name of the field.
func (c Config) Validate() error {
	switch {
	case c.Logger == nil:
		return fmt.Errorf("%w: Logger is required", ErrConfig)
	case (c.DSN == "") == (c.Path == ""):
		return fmt.Errorf("%w: one of DSN and Path is required", ErrConfig)
	case c.Conns < 1:
		return fmt.Errorf("%w: Conns must be positive", ErrConfig)
	}
	return nil
}

// Open opens the database and pings it. db.Name() is its
// dialect: migrations.MySQL or migrations.SQLite. Close it with
// Close. Errors: ErrConfig, or the database's own.
func Open(ctx context.Context, cfg Config) (*gorm.DB, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	pool, dialector, err := cfg.open()
	if err != nil {
		return nil, err
	}
	if err := pool.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("sqlstore: open: %w", err), pool.Close())
	}
	return cfg.wrap(pool, dialector)
}

// wrap makes a gorm.DB from a pool without connecting.
func (c Config) wrap(pool *sql.DB, dialector gorm.Dialector) (*gorm.DB, error) {
	db, err := gorm.Open(dialector, &gorm.Config{
		Logger: gormLog{log: c.Logger, slow: slowStatement}, TranslateError: true, SkipDefaultTransaction: true, DisableAutomaticPing: true,
		NowFunc: Now,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sqlstore: open: %w", err), pool.Close())
	}
	return db, nil
}

// Close closes a database opened by Open.
func Close(db *gorm.DB) error {
	pool, err := db.DB()
	if err != nil {
		return fmt.Errorf("sqlstore: close: %w", err)
	}
	return pool.Close()
}

func (c Config) open() (*sql.DB, gorm.Dialector, error) {
	if c.Path != "" {
		return c.openSQLite()
	}
	return c.openMySQL(func(connector driver.Connector) driver.Connector { return connector })
}

// openMySQL overrides what the code relies on in the operator's DSN.
// RowsAffected counts changed rows, not matched ones. Times are UTC. A call
// sends one statement. Session variables are those of session.go.
func (c Config) openMySQL(guard func(driver.Connector) driver.Connector) (*sql.DB, gorm.Dialector, error) {
	dsn, err := parseDSN(c.DSN)
	if err != nil {
		return nil, nil, err
	}
	if err := useFiles(dsn); err != nil {
		return nil, nil, fmt.Errorf("%w: DSN: %w", ErrConfig, err)
	}
	dsn.ClientFoundRows = false
	dsn.MultiStatements = false
	dsn.InterpolateParams = true
	dsn.ParseTime = true
	dsn.Loc = time.UTC
	dsn.RejectReadOnly = false // failover does better
	dsn.Collation = ""
	dsn.Logger = &mysql.NopLogger{} // the driver returns the same errors
	dsn.Timeout = cmp.Or(dsn.Timeout, dialTimeout)
	dsn.ReadTimeout = cmp.Or(dsn.ReadTimeout, c.ReadTimeout)
	dsn.WriteTimeout = cmp.Or(dsn.WriteTimeout, ioTimeout)
	variables := c.session(dsn)
	options := []mysql.Option{mysql.Charset(charset, collation)}
	if c.Renewed != nil {
		options = append(options, mysql.BeforeConnect(c.renew))
	}
	if err := dsn.Apply(options...); err != nil {
		return nil, nil, fmt.Errorf("%w: DSN: %w", ErrConfig, err)
	}
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: DSN: %w", ErrConfig, err)
	}
	pool := sql.OpenDB(guard(failover{Connector: pinned{connector, variables, signInTimes * dsn.Timeout}, refusals: new(atomic.Int64)}))
	pool.SetMaxOpenConns(c.Conns)
	pool.SetMaxIdleConns(c.Conns)
	pool.SetConnMaxLifetime(connLifetime)
	// skips the version query: no statement depends on it
	return pool, gormmysql.New(gormmysql.Config{Conn: pool, SkipInitializeWithVersion: true}), nil
}

// useFiles loads the certificates named by DSN parameters. They turn TLS on.
func useFiles(dsn *mysql.Config) error {
	for _, name := range tlsfiles.Options {
		if file, given := dsn.Params[name]; given && file == "" {
			return fmt.Errorf("option %s has no value", name)
		}
	}
	files := tlsfiles.Take(func(name string) string { return dsn.Params[name] }, func(name string) { delete(dsn.Params, name) })
	if len(files) == 0 {
		return nil
	}
	if dsn.TLS == nil || files[tlsfiles.CA] != "" { // a given authority is always checked
		dsn.TLS = &tls.Config{}
	}
	dsn.TLSConfig = ""
	dsn.TLS.MinVersion = tls.VersionTLS12
	dsn.AllowFallbackToPlaintext = false
	return files.Apply(dsn.TLS)
}

// renew applies the current user and password to a new connection.
func (c Config) renew(_ context.Context, made *mysql.Config) error {
	now, err := parseDSN(c.Renewed())
	if err == nil {
		made.User = now.User
		made.Passwd = now.Passwd
	}
	return err
}

// CheckDSN returns ErrConfig if the DSN can't be parsed.
func CheckDSN(dsn string) error {
	_, err := parseDSN(dsn)
	return err
}

func parseDSN(text string) (*mysql.Config, error) {
	dsn, err := address.ParseDSN(text)
	if err != nil {
		return nil, fmt.Errorf("%w: DSN: %w", ErrConfig, err)
	}
	return dsn, nil
}

// ErrInUse means that another process has the lock.
var ErrInUse = errors.New("sqlstore: in use")

// LockFile takes a lock, which ends with the process at the latest. It is that
// of an empty SQLite database, so that it works on every system. Errors:
// ErrInUse.
func LockFile(ctx context.Context, path string) (release func(), err error) {
	file := url.URL{Scheme: "file", OmitHost: true, Path: path}
	pool, err := sql.Open(sqlite.DriverName, file.String())
	if err != nil {
		return nil, fmt.Errorf("sqlstore: lock: %w", err)
	}
	held, err := pool.Conn(ctx)
	if err == nil {
		_, err = held.ExecContext(ctx, "BEGIN EXCLUSIVE")
	}
	if FailureOf(err) == FailureClash {
		err = ErrInUse
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sqlstore: lock: %w", err), pool.Close())
	}
	return func() {
		_ = held.Close()
		_ = pool.Close() // this ends the transaction
	}, nil
}

// openSQLite allows readers beside one writer. A transaction takes the write
// lock at its start, so it can't fail halfway because of another.
func (c Config) openSQLite() (*sql.DB, gorm.Dialector, error) {
	query := url.Values{"_txlock": {"immediate"}, "_pragma": {
		fmt.Sprintf("busy_timeout(%d)", sqliteBusyMs), "journal_mode(WAL)", "synchronous(FULL)",
	}}
	file := url.URL{Scheme: "file", OmitHost: true, Path: c.Path, RawQuery: query.Encode()}
	pool, err := sql.Open(sqlite.DriverName, file.String())
	if err != nil {
		return nil, nil, fmt.Errorf("sqlstore: open: %w", err)
	}
	pool.SetMaxOpenConns(c.Conns)
	pool.SetMaxIdleConns(c.Conns)
	return pool, &sqlite.Dialector{Conn: pool}, nil
}
