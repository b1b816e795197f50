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

// leaseFor is how long a leader that died is waited for.
const leaseFor = 10 * time.Second

// ErrLeaseLost is why the work of a leader was stopped: another may lead by
// now.
var ErrLeaseLost = errors.New("syncer: the lease of the leader was lost")

// Leader holds, among many processes, the one lease there is, or waits for it.
// It saves duplicate work and guards nothing: a process that was asleep may
// find out late that it leads no more, so whatever is done under the lease must
// be safe to do twice.
type Leader struct {
	leases   *lua.Scripts
	name     string // of this process
	log      *slog.Logger
	leaseFor time.Duration // is the constant, but in tests

	mu   sync.Mutex
	term context.Context //nolint:containedctx // lasts as long as the lease; nil: another leads
	work sync.WaitGroup  // under way; begun under mu
}

// NewLeader makes a candidate, whose name is for people who ask the leader; Run
// makes it stand for election.
func NewLeader(leases *lua.Scripts, name string, log *slog.Logger) *Leader {
	return &Leader{leases: leases, name: name, log: log, leaseFor: leaseFor}
}

// Leads reports whether this process holds the lease.
func (l *Leader) Leads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term != nil && l.term.Err() == nil
}

// begin counts a piece of work in and returns the term that it belongs to; nil:
// another leads.
func (l *Leader) begin() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == nil || l.term.Err() != nil {
		return nil
	}
	l.work.Add(1)
	return l.term
}

// Do runs work if this process leads, and reports whether it did. The context
// that work gets ends with the lease, by the cause ErrLeaseLost.
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

// Run stands for leader, leads and stands again, until ctx ends; then it waits
// for what Do runs and gives the lease back. Redis being away is no error: no
// one leads then.
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

// lead holds the lease until it is lost or ctx ends.
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
		l.work.Wait() // so that who follows does not meet it
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.leaseFor/3)
		defer cancel()
		_ = lease.Release(leaving) // it runs out by itself
		return
	}
	l.log.LogAttrs(ctx, slog.LevelWarn, "this process leads no more", slog.Any("error", err))
}

func (l *Leader) setTerm(term context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = term
}
