package syncer

import (
	"dibs/internal/sleep"

	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"dibs/internal/sqlstore"
	"dibs/lua"
)

// DefaultLeaseFor is how long a leader that died is waited for.
const DefaultLeaseFor = 10 * time.Second

// ErrLeaseLost is why the work of a leader was stopped: another may lead by now.
var ErrLeaseLost = errors.New("syncer: the lease of the leader was lost")

// Leases is the part of lua.Scripts that a Leader uses.
type Leases interface {
	LockLeader(ctx context.Context, ttl time.Duration) (*lua.Lock, error)
}

var _ Leases = (*lua.Scripts)(nil)

// LeaderConfig is how a Leader works. Scripts and Logger are required.
type LeaderConfig struct {
	Scripts  Leases
	LeaseFor time.Duration // renewed each third of it
	Logger   *slog.Logger
}

// WithDefaults returns a copy with defaults where nothing is set.
func (c LeaderConfig) WithDefaults() LeaderConfig {
	sqlstore.OrDefault(&c.LeaseFor, DefaultLeaseFor)
	return c
}

// Validate returns nil, or ErrConfig wrapped with the name of the field.
func (c LeaderConfig) Validate() error {
	switch {
	case c.Scripts == nil:
		return sqlstore.Required("Scripts")
	case c.Logger == nil:
		return sqlstore.Required("Logger")
	case c.LeaseFor < 10*time.Millisecond:
		return fmt.Errorf("%w: LeaseFor must be at least 10ms", sqlstore.ErrConfig)
	}
	return nil
}

// Leader holds, among many processes, the one lease there is, or waits for it. It spares work rather than guards it: a
// process that was asleep may find out late that it leads no more, so whatever is done under the lease must be safe to do
// twice.
type Leader struct {
	cfg LeaderConfig

	mu   sync.Mutex
	term context.Context //nolint:containedctx // lasts as long as the lease; nil: another leads
	work sync.WaitGroup  // under way; begun under mu
}

// NewLeader checks cfg and makes a candidate; Run has it stand.
func NewLeader(cfg LeaderConfig) (*Leader, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Leader{cfg: cfg}, nil
}

// Leads tells whether this process holds the lease.
func (l *Leader) Leads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term != nil && l.term.Err() == nil
}

// begin counts a piece of work in and returns the term that it belongs to; nil: another leads.
func (l *Leader) begin() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == nil || l.term.Err() != nil {
		return nil
	}
	l.work.Add(1)
	return l.term
}

// Do runs work if this process leads, and tells whether it did. The context that work gets ends with the lease, by the cause
// ErrLeaseLost.
func (l *Leader) Do(ctx context.Context, work func(ctx context.Context) error) (led bool, err error) {
	term := l.begin()
	if term == nil {
		return false, nil
	}
	defer l.work.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(term, func() { cancel(context.Cause(term)) })()
	return true, work(ctx)
}

// Run stands for leader, leads and stands again, until ctx ends; then it waits for what Do runs and gives the lease back. Redis being
// away is no error: nobody leads then.
func (l *Leader) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		begun := time.Now()
		asking, cancel := context.WithTimeout(ctx, l.cfg.LeaseFor/3)
		lease, err := l.cfg.Scripts.LockLeader(asking, l.cfg.LeaseFor)
		cancel()
		if err == nil {
			l.lead(ctx, lease, begun)
			continue
		}
		if !errors.Is(err, lua.ErrLocked) && ctx.Err() == nil {
			l.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "could not ask for the lease of the leader", slog.Any("error", err))
		}
		_ = sleep.For(ctx, l.cfg.LeaseFor/10) // ctx is looked at above
	}
	return nil
}

// lead holds the lease until it is lost or ctx ends.
func (l *Leader) lead(ctx context.Context, lease *lua.Lock, begun time.Time) {
	term, end := context.WithCancelCause(ctx)
	l.mu.Lock()
	l.term = term
	l.mu.Unlock()
	l.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "this process leads")
	err := l.renew(ctx, lease, begun)
	end(err)
	l.mu.Lock()
	l.term = nil
	l.mu.Unlock()
	if ctx.Err() != nil {
		l.work.Wait() // so that who follows does not meet it
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.cfg.LeaseFor/3)
		defer cancel()
		_ = lease.Release(leaving) // it runs out by itself
		return
	}
	l.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "this process leads no more", slog.Any("error", err))
}

// renew returns when the lease is lost, or may be before it could be renewed, or ctx ends. held is a moment before the lease
// was last granted: by then it surely ran.
func (l *Leader) renew(ctx context.Context, lease *lua.Lock, held time.Time) error {
	for {
		ends := held.Add(l.cfg.LeaseFor)
		if err := sleep.For(ctx, min(l.cfg.LeaseFor/3, time.Until(ends))); err != nil {
			return err
		}
		begun := time.Now()
		asking, cancel := context.WithDeadline(ctx, ends)
		err := lease.Renew(asking)
		cancel()
		switch {
		case err == nil:
			held = begun
		case errors.Is(err, lua.ErrLocked), !time.Now().Before(ends):
			return fmt.Errorf("%w: %w", ErrLeaseLost, err)
		}
	}
}
