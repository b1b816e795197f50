package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"gorm.io/gorm"
)

var (
	// ErrUnchecked means that MySQL can't be used yet, because its
	// check has not passed.
	ErrUnchecked = errors.New("sqlstore: the database has not answered since the start, so it is not checked and not used yet")
	// ErrAway means that MySQL does not answer, or refuses
	// connections or writes for now.
	ErrAway = errors.New("sqlstore: the database is away: it does not answer, or refuses connections or writes for now")
)

// DefaultGateEvery is the pause between attempts to reach MySQL.
const DefaultGateEvery = time.Second

// finalNumbers are refusals that only a person can fix: of a user, its
// grants, the schema or a statement. All other refusals may be temporary: a
// server may be joining its cluster, shutting down or at its connection
// limit, and so may a proxy in front of it.
var finalNumbers = []uint16{
	1044, 1045, 1049, 1129, 1130, // user, host or database refused
	1142, 1143, 1227, 1370, // grants
	// wrong schema, or another kind of server
	1054, 1064, 1115, 1146, 1193, 1231, 1273, 1298, 1305, 1356,
	1251, 1275, 1524, 1820, 1862, 3118, 3159, 4151, // authentication methods
}

// IsFinal reports whether MySQL refuses for a reason that only a person can
// fix, such as a missing grant.
func IsFinal(err error) bool {
	my, is := errors.AsType[*mysql.MySQLError](err)
	return is && slices.Contains(finalNumbers, my.Number)
}

// Gate blocks the use of MySQL until a check has passed. A
// process can so start without MySQL, yet never use one with an
// older schema or another number of partitions.
type Gate struct {
	cfg   Config
	check func(context.Context, *gorm.DB) error
	open  atomic.Bool
}

// OpenGated opens a MySQL that may be unreachable. It makes no connection.
// Every use of db fails with ErrUnchecked until Try or Await of the gate has
// returned nil. check gets its own pool. Errors: ErrConfig.
func OpenGated(cfg Config, check func(context.Context, *gorm.DB) error) (*gorm.DB, *Gate, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, nil, err
	}
	if cfg.DSN == "" {
		return nil, nil, fmt.Errorf("%w: DSN is required", ErrConfig)
	}
	g := &Gate{cfg: cfg, check: check}
	pool, dialector, err := cfg.openMySQL(func(c driver.Connector) driver.Connector { return gated{Connector: c, gate: g} })
	if err != nil {
		return nil, nil, err
	}
	db, err := cfg.wrap(pool, dialector)
	return db, g, err
}

// Try runs the check and opens the gate if it passes. After a wrapped ErrAway
// another try may succeed. Any other error is final.
func (g *Gate) Try(ctx context.Context) error {
	if g.open.Load() {
		return nil
	}
	db, err := Open(ctx, g.cfg)
	if err == nil {
		err = g.check(ctx, db)
		_ = Close(db)
	}
	switch {
	case err == nil:
		g.open.Store(true)
		return nil
	case away(err):
		return fmt.Errorf("%w: %w", ErrAway, err)
	}
	return err
}

// Await retries after each pause. It returns nil once the gate
// is open or ctx ends, and any error of Try but ErrAway.
func (g *Gate) Await(ctx context.Context, every time.Duration, log *slog.Logger) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for started := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := g.Try(ctx)
		switch {
		case err == nil:
			log.Info("MySQL is there", "after", time.Since(started).Round(time.Millisecond))
			return nil
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, ErrAway):
			return err
		}
	}
}

// away reports whether a server does not answer, or refuses only for now.
func away(err error) bool {
	if my, is := errors.AsType[*mysql.MySQLError](err); is {
		return !IsFinal(my)
	}
	if _, is := errors.AsType[net.Error](err); is {
		return true
	}
	return errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, context.DeadlineExceeded)
}

// gated refuses to connect until its gate is open.
type gated struct {
	driver.Connector

	gate *Gate
}

// Connect connects, or returns ErrUnchecked.
func (g gated) Connect(ctx context.Context) (driver.Conn, error) {
	if !g.gate.open.Load() {
		return nil, ErrUnchecked
	}
	return g.Connector.Connect(ctx)
}
