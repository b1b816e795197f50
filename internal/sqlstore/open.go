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

// DefaultConns is the most connections to a MySQL, unless Config says
// otherwise.
const DefaultConns = 16

const (
	connsSQLite     = 4
	slowStatement   = time.Second // statements that take longer are logged
	dialTimeout     = 5 * time.Second
	ioTimeout       = time.Minute // for a caller without a deadline of its own
	connLifetime    = 5 * time.Minute
	sqliteBusyMs    = 10_000
	lockWaitSeconds = 10 // the server's own default of 50 would hold a whole flush for that long
)

// ErrConfig is wrapped by every refusal of a Config, of this package and of
// those that build on it. The message names the field.
var ErrConfig = errors.New("bad configuration")

// Config says which database to open. Logger and one of DSN and Path are
// required.
type Config struct {
	DSN string // MySQL or MariaDB, in the form of go-sql-driver
	// Renewed is the DSN as it is by now, for new connections: they take user
	// and password of it. It must be one that CheckDSN accepts. Nil is DSN.
	Renewed func() string
	Path    string // file of an embedded SQLite, created if it does not exist

	Conns int // most connections at a time
	// longest wait for the server to send anything; migrations of large tables
	// need more
	ReadTimeout time.Duration

	// SchemaLockWait is the longest wait of a statement for tables that others
	// use; 0 leaves it to the server. While a change of a table waits,
	// statements that come later wait behind it.
	SchemaLockWait time.Duration

	Logger *slog.Logger
}

// WithDefaults returns a copy with defaults where nothing is set.
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

// Open opens the database and pings it. Its dialect is db.Name(), which is
// migrations.MySQL or migrations.SQLite. Close it with Close. Errors:
// ErrConfig, or the database's own.
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

// wrap makes a gorm.DB of a pool, without a connection.
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

// Close closes a database that Open opened.
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

// openMySQL takes the operator's DSN and overrides in it what the code relies
// on: RowsAffected counts changed rows and not found ones, times are UTC, a
// call sends one statement, and the session variables are those of session.go.
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
	dsn.Logger = &mysql.NopLogger{} // it would log what the driver also returns
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
	pool := sql.OpenDB(guard(failover{Connector: pinned{connector, variables}, refusals: new(atomic.Int64)}))
	pool.SetMaxOpenConns(c.Conns)
	pool.SetMaxIdleConns(c.Conns)
	pool.SetConnMaxLifetime(connLifetime)
	// asks for nothing that versions differ in
	return pool, gormmysql.New(gormmysql.Config{Conn: pool, SkipInitializeWithVersion: true}), nil
}

// useFiles has a connection use the certificates that parameters of the DSN
// name. They turn TLS on.
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
	if dsn.TLS == nil || files[tlsfiles.CA] != "" { // an authority is named to be checked
		dsn.TLS = &tls.Config{}
	}
	dsn.TLSConfig = ""
	dsn.TLS.MinVersion = tls.VersionTLS12
	dsn.AllowFallbackToPlaintext = false
	return files.Apply(dsn.TLS)
}

// renew gives a connection that is about to be made the user and the password
// of now.
func (c Config) renew(_ context.Context, made *mysql.Config) error {
	now, err := parseDSN(c.Renewed())
	if err == nil {
		made.User = now.User
		made.Passwd = now.Passwd
	}
	return err
}

// CheckDSN refuses what can be no DSN. Errors: ErrConfig.
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

// openSQLite lets readers read beside one writer. Each transaction waits for
// the write lock when it begins, so none fails half way because of another one.
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
