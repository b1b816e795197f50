package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
)

// readOnlyNumbers are the errors of a read-only MySQL, such as
// the old primary after a failover.
var readOnlyNumbers = []uint16{1290, 1792, 1836}

// failover drops all existing connections once a read-only server has refused
// a statement. The next statement reconnects, to the new primary if there is
// one. The driver's RejectReadOnly was rejected: it drops one connection at a
// time and hides the server's message.
type failover struct {
	driver.Connector

	refusals *atomic.Int64 // refusals by a read-only server so far
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

// DriverConn is the part of the driver's connection that database/sql uses.
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
	made     int64 // count of refusals at connect
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
		// count only the first refusal from the old primary's connections
		c.refusals.CompareAndSwap(c.made, c.made+1)
	}
}

// ResetSession runs before a pooled connection is reused.
func (c *failoverConn) ResetSession(ctx context.Context) error {
	if c.refusals.Load() != c.made {
		return driver.ErrBadConn
	}
	return c.DriverConn.ResetSession(ctx)
}

// IsValid runs before a connection returns to the pool.
func (c *failoverConn) IsValid() bool { return c.refusals.Load() == c.made && c.DriverConn.IsValid() }
