package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
)

// readOnlyNumbers are the errors of a MySQL that takes no writes: after a
// failover, the old primary.
var readOnlyNumbers = []uint16{1290, 1792, 1836}

// failover connects. Once a statement was refused because its server is
// read-only, all connections made before are dropped, so that the next
// statement connects again, to the new primary where there is one. (The
// driver's own RejectReadOnly does so for one connection at a time, and hides
// what the server said.)
type failover struct {
	driver.Connector

	refusals *atomic.Int64 // statements so far that a read-only server refused
}

// Connect makes a connection that is dropped after the next refusal.
func (f failover) Connect(ctx context.Context) (driver.Conn, error) {
	made := f.refusals.Load()
	c, err := f.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	inner, ok := c.(DriverConn)
	if !ok {
		return c, nil
	}
	return &failoverConn{DriverConn: inner, refusals: f.refusals, made: made}, nil
}

// DriverConn is all that database/sql makes use of in the driver's connection.
type DriverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

var _ DriverConn = (*failoverConn)(nil)

type failoverConn struct {
	DriverConn

	refusals *atomic.Int64
	made     int64 // refusals before this connection was made
}

// ExecContext runs a statement.
func (c *failoverConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.DriverConn.ExecContext(ctx, query, args)
	c.check(err)
	return result, err
}

// QueryContext runs a query.
func (c *failoverConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.DriverConn.QueryContext(ctx, query, args)
	c.check(err)
	return rows, err
}

func (c *failoverConn) check(err error) {
	if my, is := errors.AsType[*mysql.MySQLError](err); is && slices.Contains(readOnlyNumbers, my.Number) {
		// of the connections to the old primary the first refusal counts
		c.refusals.CompareAndSwap(c.made, c.made+1)
	}
}

// ResetSession is called before a connection of the pool is used again.
func (c *failoverConn) ResetSession(ctx context.Context) error {
	if c.refusals.Load() != c.made {
		return driver.ErrBadConn
	}
	return c.DriverConn.ResetSession(ctx)
}

// IsValid is called before a connection returns to the pool.
func (c *failoverConn) IsValid() bool { return c.refusals.Load() == c.made && c.DriverConn.IsValid() }
