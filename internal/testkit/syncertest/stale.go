package syncertest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/testenv"
)

// StaleReads opens a database as if behind a proxy that sends reads to a
// replica. After lag, non-locking queries outside transactions read the rows
// of that moment. Everything else reaches the database. catchUp ends that.
func StaleReads(t testing.TB, dsn string) (db *gorm.DB, lag, catchUp func()) {
	t.Helper()
	primary, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	primary.ParseTime = true
	connector, err := mysql.NewConnector(primary)
	require.NoError(t, err)
	replica := testenv.Database(t).Name
	lags := new(atomic.Bool)
	pool := sql.OpenDB(router{Connector: connector, primary: primary.DBName, replica: replica, lags: lags})
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	db, err = gorm.Open(gormmysql.New(gormmysql.Config{Conn: pool, SkipInitializeWithVersion: true}), &gorm.Config{
		TranslateError: true, SkipDefaultTransaction: true, NowFunc: sqlstore.Now,
	})
	require.NoError(t, err)
	lag = func() {
		copyTables(t, pool, primary.DBName, replica)
		lags.Store(true)
	}
	return db, lag, func() { lags.Store(false) }
}

// copyTables copies rows without generated columns.
func copyTables(t testing.TB, pool *sql.DB, from, to string) {
	t.Helper()
	rows, err := pool.QueryContext(t.Context(), "SELECT table_name, GROUP_CONCAT(CONCAT('`', column_name, '`'))"+
		" FROM information_schema.columns"+
		" WHERE table_schema = ? AND COALESCE(generation_expression, '') = '' AND table_name IN (SELECT table_name"+
		" FROM information_schema.tables WHERE table_schema = ? AND table_type = 'BASE TABLE') GROUP BY table_name", from, from)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	columns := make(map[string]string)
	for rows.Next() {
		var name, list string
		require.NoError(t, rows.Scan(&name, &list))
		columns[name] = list
	}
	require.NoError(t, rows.Err())
	for name, list := range columns {
		copied := "`" + to + "`.`" + name + "`"
		source := "`" + from + "`.`" + name + "`"
		for _, statement := range []string{
			"CREATE TABLE " + copied + " LIKE " + source, "INSERT INTO " + copied + " (" + list + ") SELECT " + list + " FROM " + source,
		} {
			_, err := pool.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
	}
	var view string // the one that Dibs reads
	query := "SELECT view_definition FROM information_schema.views WHERE table_schema = ? AND table_name = 'defined_lots'"
	require.NoError(t, pool.QueryRowContext(t.Context(), query, from).Scan(&view))
	_, err = pool.ExecContext(t.Context(), "CREATE VIEW `"+to+"`.defined_lots AS "+strings.ReplaceAll(view, "`"+from+"`.", "`"+to+"`."))
	require.NoError(t, err)
}

// router makes connections that switch between two databases of a server.
type router struct {
	driver.Connector

	primary, replica string
	lags             *atomic.Bool
}

// Connect implements driver.Connector.
func (r router) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := r.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	inner, ok := conn.(sqlstore.DriverConn)
	if !ok {
		return nil, errors.Join(errDriver, conn.Close())
	}
	return &routed{DriverConn: inner, router: r, at: r.primary}, nil
}

var errDriver = errors.New("syncertest: the driver's connection lacks what database/sql uses")

type routed struct {
	sqlstore.DriverConn

	router router
	at     string // the database in use
	inTx   bool
}

// BeginTx starts a transaction on the primary.
func (c *routed) BeginTx(ctx context.Context, how driver.TxOptions) (driver.Tx, error) {
	if err := c.use(ctx, c.router.primary); err != nil {
		return nil, err
	}
	tx, err := c.DriverConn.BeginTx(ctx, how)
	c.inTx = err == nil
	return &routedTx{Tx: tx, conn: c}, err
}

// ExecContext writes to the primary.
func (c *routed) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.use(ctx, c.router.primary); err != nil {
		return nil, err
	}
	return c.DriverConn.ExecContext(ctx, query, args)
}

// PrepareContext prepares on the primary, except for reads.
func (c *routed) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.use(ctx, c.where(query)); err != nil {
		return nil, err
	}
	return c.DriverConn.PrepareContext(ctx, query)
}

// QueryContext reads from the replica, unless in a transaction or locking.
func (c *routed) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.use(ctx, c.where(query)); err != nil {
		return nil, err
	}
	return c.DriverConn.QueryContext(ctx, query, args)
}

func (c *routed) where(query string) string {
	text := strings.ToUpper(query)
	locks := strings.Contains(text, "FOR UPDATE") || strings.Contains(text, "LOCK IN SHARE")
	isRead := strings.HasPrefix(strings.TrimSpace(text), "SELECT")
	if isRead && !locks && !c.inTx && c.router.lags.Load() {
		return c.router.replica
	}
	return c.router.primary
}

func (c *routed) use(ctx context.Context, database string) error {
	if c.at == database {
		return nil
	}
	_, err := c.DriverConn.ExecContext(ctx, "USE `"+database+"`", nil)
	if err == nil {
		c.at = database
	}
	return err
}

type routedTx struct {
	driver.Tx

	conn *routed
}

// Commit ends the transaction.
func (tx *routedTx) Commit() error {
	tx.conn.inTx = false
	return tx.Tx.Commit()
}

// Rollback ends the transaction.
func (tx *routedTx) Rollback() error {
	tx.conn.inTx = false
	return tx.Tx.Rollback()
}
