package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
)

// Defaults of StoreConfig.
const (
	DefaultConns       = 16
	DefaultConnsSQLite = 4
	DefaultSlow        = time.Second
	dialTimeout        = 5 * time.Second
	ioTimeout          = time.Minute // for the caller that forgot a deadline
	connLifetime       = 5 * time.Minute
	sqliteBusyMs       = 10_000
	lockWaitSeconds    = 10 // the server's own default of 50 would hold a whole flush for that long
)

// strictMode makes the server refuse what it would else cut or round in silence.
const strictMode = "'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'"

// StoreConfig says which database to open. Logger and one of DSN and Path are required.
type Config struct {
	DSN  string // MySQL or MariaDB, in the form of go-sql-driver
	Path string // file of an embedded SQLite, made when it is not there

	Conns       int           // most connections at a time
	Slow        time.Duration // statements that take longer are logged
	ReadTimeout time.Duration // most that the server may be silent; migrations of large tables want more

	Logger *slog.Logger
}

// WithDefaults returns a copy with defaults where nothing is set.
func (c Config) WithDefaults() Config {
	conns := DefaultConns
	if c.Path != "" {
		conns = DefaultConnsSQLite
	}
	OrDefault(&c.Conns, conns)
	OrDefault(&c.Slow, DefaultSlow)
	OrDefault(&c.ReadTimeout, ioTimeout)
	return c
}

// Validate returns nil, or ErrConfig wrapped with the name of the field.
func (c Config) Validate() error {
	switch {
	case c.Logger == nil:
		return Required("Logger")
	case (c.DSN == "") == (c.Path == ""):
		return fmt.Errorf("%w: one of DSN and Path is required", ErrConfig)
	case c.Conns < 1:
		return fmt.Errorf("%w: Conns must be positive", ErrConfig)
	}
	return nil
}

// Open opens the database and asks it for a sign of life. Its dialect is db.Name(), which is migrations.MySQL or
// migrations.SQLite. Close it with Close. Errors: ErrConfig, or the database's own.
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
		return nil, errors.Join(fmt.Errorf("syncer: open: %w", err), pool.Close())
	}
	return cfg.wrap(pool, dialector)
}

// wrap makes no connection: the pool's owner has asked for a sign of life, or wants none yet.
func (c Config) wrap(pool *sql.DB, dialector gorm.Dialector) (*gorm.DB, error) {
	db, err := gorm.Open(dialector, &gorm.Config{
		Logger: gormLog{log: c.Logger, slow: c.Slow}, TranslateError: true, SkipDefaultTransaction: true, DisableAutomaticPing: true,
		NowFunc: func() time.Time { return time.Now().UTC().Truncate(time.Millisecond) },
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("syncer: open: %w", err), pool.Close())
	}
	return db, nil
}

// Close closes a database that Open opened.
func Close(db *gorm.DB) error {
	pool, err := db.DB()
	if err != nil {
		return fmt.Errorf("syncer: close: %w", err)
	}
	return pool.Close()
}

func (c Config) open() (*sql.DB, gorm.Dialector, error) {
	if c.Path != "" {
		return c.openSQLite()
	}
	return c.openMySQL(func(connector driver.Connector) driver.Connector { return connector })
}

// openMySQL takes the operator's DSN and sets what the code relies on, whatever the DSN says: the count of changed rows
// rather than found ones, times in UTC, no statement beside the one that was sent.
func (c Config) openMySQL(guard func(driver.Connector) driver.Connector) (*sql.DB, gorm.Dialector, error) {
	dsn, err := mysql.ParseDSN(c.DSN)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: DSN: %w", ErrConfig, err)
	}
	dsn.ClientFoundRows, dsn.MultiStatements = false, false
	dsn.InterpolateParams, dsn.ParseTime, dsn.Loc = true, true, time.UTC
	dsn.RejectReadOnly = true // after a failover: leave the old primary
	dsn.Collation = ""
	dsn.Logger = &mysql.NopLogger{} // the driver returns what it would log
	OrDefault(&dsn.Timeout, dialTimeout)
	OrDefault(&dsn.ReadTimeout, c.ReadTimeout)
	OrDefault(&dsn.WriteTimeout, ioTimeout)
	if dsn.Params == nil {
		dsn.Params = make(map[string]string)
	}
	dsn.Params["sql_mode"] = strictMode
	dsn.Params["time_zone"] = "'+00:00'"
	if dsn.Params["innodb_lock_wait_timeout"] == "" {
		dsn.Params["innodb_lock_wait_timeout"] = strconv.Itoa(lockWaitSeconds)
	}
	if err := dsn.Apply(mysql.Charset("utf8mb4", "")); err != nil {
		return nil, nil, fmt.Errorf("%w: DSN: %w", ErrConfig, err)
	}
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: DSN: %w", ErrConfig, err)
	}
	pool := sql.OpenDB(guard(connector))
	pool.SetMaxOpenConns(c.Conns)
	pool.SetMaxIdleConns(c.Conns)
	pool.SetConnMaxLifetime(connLifetime)
	return pool, gormmysql.New(gormmysql.Config{Conn: pool, SkipInitializeWithVersion: true}), nil // asks for nothing that versions differ in
}

// openSQLite lets readers read beside one writer: each transaction that writes takes the write lock when it begins, so none
// can fail half way for another's sake, and waits its turn for it.
func (c Config) openSQLite() (*sql.DB, gorm.Dialector, error) {
	query := url.Values{"_txlock": {"immediate"}, "_pragma": {
		fmt.Sprintf("busy_timeout(%d)", sqliteBusyMs), "journal_mode(WAL)", "synchronous(FULL)",
	}}
	file := url.URL{Scheme: "file", OmitHost: true, Path: c.Path, RawQuery: query.Encode()}
	pool, err := sql.Open(sqlite.DriverName, file.String())
	if err != nil {
		return nil, nil, fmt.Errorf("syncer: open: %w", err)
	}
	pool.SetMaxOpenConns(c.Conns)
	pool.SetMaxIdleConns(c.Conns)
	return pool, &sqlite.Dialector{Conn: pool}, nil
}
