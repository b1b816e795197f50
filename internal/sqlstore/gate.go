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
	// ErrShut says that MySQL may not be used yet: it was not seen to be the right one.
	ErrUnchecked = errors.New("syncer: database was not checked yet")
	// ErrAway says that MySQL does not answer, or takes nobody now.
	ErrAway = errors.New("syncer: database is away")
)

// GateEveryDefault is how often a gate asks for a MySQL that is away.
const DefaultGateEvery = time.Second

// awayNumbers are refusals of a MySQL that will take us later.
var awayNumbers = []uint16{
	1040, // too many connections
	1053, // shutdown in progress
	1203, // too many connections of this user
	1226, // a limit of this user
	3032, // offline mode
}

// Gate keeps a MySQL shut until a check has passed: a process may start while MySQL is away, and cannot use one with
// an older schema or somebody else's partitions once it is back.
type Gate struct {
	cfg   Config
	check func(context.Context, *gorm.DB) error
	open  atomic.Bool
}

// OpenShut opens a MySQL that may be away: it makes no connection, and whoever uses db is told ErrShut until Try or Await of the
// gate returned nil. check gets a store of its own. Errors: ErrConfig.
func OpenGated(cfg Config, check func(context.Context, *gorm.DB) error) (*gorm.DB, *Gate, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, nil, err
	}
	if cfg.DSN == "" {
		return nil, nil, Required("DSN")
	}
	g := &Gate{cfg: cfg, check: check}
	pool, dialector, err := cfg.openMySQL(func(c driver.Connector) driver.Connector { return gated{Connector: c, gate: g} })
	if err != nil {
		return nil, nil, err
	}
	db, err := cfg.wrap(pool, dialector)
	return db, g, err
}

// Try checks the database and opens the gate if it is the right one. ErrAway, wrapped, is worth another try; any other error is
// the database's last word.
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

// Await tries again after each pause until the gate is open or ctx ends, which both are nil, or until the database turns out
// to be the wrong one.
func (g *Gate) Await(ctx context.Context, every time.Duration, log *slog.Logger) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for began := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := g.Try(ctx)
		switch {
		case err == nil:
			log.Info("MySQL is there", "after", time.Since(began).Round(time.Millisecond))
			return nil
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, ErrAway):
			return err
		}
	}
}

// away tells a server that does not answer from one that says no.
func away(err error) bool {
	if my, is := errors.AsType[*mysql.MySQLError](err); is {
		return slices.Contains(awayNumbers, my.Number)
	}
	if _, is := errors.AsType[net.Error](err); is {
		return true
	}
	return errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, context.DeadlineExceeded)
}

// gated makes no connection while its gate is shut.
type gated struct {
	driver.Connector

	gate *Gate
}

// Connect connects, or returns ErrShut.
func (g gated) Connect(ctx context.Context) (driver.Conn, error) {
	if !g.gate.open.Load() {
		return nil, ErrUnchecked
	}
	return g.Connector.Connect(ctx)
}
