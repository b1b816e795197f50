package syncer

import (
	"dibs/internal/sleep"

	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"dibs/lua"
)

// leaseFor is how long a dead leader keeps the lease.
const leaseFor = 10 * time.Second

// ErrLeaseLost is why a leader's work was
// stopped: another process may lead now.
var ErrLeaseLost = errors.New("syncer: the lease of the leader was lost")

// Leader has the only lease among many processes, or waits for it. It saves
// duplicate work and guards nothing: a suspended process may detect the loss
// of its lease late. So all work under the lease must be safe to do twice.
type Leader struct {
	leases   *lua.Scripts
	name     string // of this process
	log      *slog.Logger
	leaseFor time.Duration // the constant, except in tests

	mu   sync.Mutex
	term context.Context //nolint:containedctx // lasts as long as the lease; nil: another leads
	work sync.WaitGroup  // in progress; started under mu
}

// NewLeader returns a candidate; Run makes it
// try. name identifies the leader to people.
func NewLeader(leases *lua.Scripts, name string, log *slog.Logger) *Leader {
	return &Leader{leases: leases, name: name, log: log, leaseFor: leaseFor}
}

// Leads reports whether this process holds the lease.
func (l *Leader) Leads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term != nil && l.term.Err() == nil
}

// begin registers work, and returns its term; nil if another process leads.
func (l *Leader) begin() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == nil || l.term.Err() != nil {
		return nil
	}
	l.work.Add(1)
	return l.term
}

// Do runs work if this process leads, and reports whether it did. The
// context of work ends with the lease, by the cause ErrLeaseLost.
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

// Run takes the lease whenever it can, until ctx ends. Then it waits
// for running work and releases the lease. An unavailable Redis is no
// error: then no process leads.
func (l *Leader) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, l.leaseFor/3)
		lease, err := l.leases.LockLeader(asking, l.name, l.leaseFor)
		cancel()
		if err == nil {
			l.lead(ctx, lease)
			continue
		}
		if !errors.Is(err, lua.ErrLocked) && ctx.Err() == nil {
			l.log.LogAttrs(ctx, slog.LevelDebug, "could not ask for the lease of the leader", slog.Any("error", err))
		}
		_ = sleep.For(ctx, l.leaseFor/10) // ctx is checked above
	}
	return nil
}

func (l *Leader) lead(ctx context.Context, lease *lua.Lock) {
	term, end := context.WithCancelCause(ctx)
	l.setTerm(term)
	l.log.LogAttrs(ctx, slog.LevelInfo, "this process leads")
	err := lease.RenewUntil(ctx)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrLeaseLost, err)
	}
	end(err)
	l.setTerm(nil) //nolint:staticcheck // no term is an answer: no one leads
	if ctx.Err() != nil {
		l.work.Wait() // so that the next leader does not overlap it
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.leaseFor/3)
		defer cancel()
		_ = lease.Release(leaving) // it expires by itself
		return
	}
	l.log.LogAttrs(ctx, slog.LevelWarn, "this process leads no more", slog.Any("error", err))
}

func (l *Leader) setTerm(term context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = term
}
