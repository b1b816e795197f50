package cmd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"dibs/internal/config"
	"dibs/internal/sleep"
	"dibs/internal/webhooks"
	"dibs/lua"
)

const (
	nameFor      = 2 * time.Second         // a name is kept so long for a process that died
	namePatience = 2*nameFor + time.Second // twice as long if Redis' clock is set back in the meantime
	namePoll     = 100 * time.Millisecond
	forever      = 100 * 365 * 24 * time.Hour
)

// withConsumerLease runs a consumer of a group as long as no other process runs under its name: both would take the other's entries for
// their own.
func (s *stack) withConsumerLease(ctx context.Context, group string, run func(context.Context) error) error {
	l := consumerLease{s: s, group: group, name: s.cfg.Name, first: namePatience, again: namePatience}
	l.taken = fmt.Errorf("%w: %sNAME: another process reads as %q in group %s; give each process a name of its own, the same after a restart",
		config.ErrConfig, config.Prefix, l.name, group)
	return l.run(ctx, run)
}

// alone runs the one consumer of a group. A process that is not the first stands by, and so does one that finds another in its place: the
// cause of run's context is webhooks.ErrReplaced then.
//
// Redis may lose a lease that its holder counts on: its clock jumps ahead, or a replica takes over that never had it. The holder notices
// when it renews the lease, at the latest when it runs out by its own clock. So whoever takes a lease waits that long before it begins.
func (s *stack) alone(ctx context.Context, group string, run func(context.Context) error) error {
	l := consumerLease{s: s, group: group, name: group, first: forever, taken: webhooks.ErrReplaced}
	for {
		err := l.run(ctx, func(ctx context.Context) error {
			if sleep.For(ctx, nameFor) != nil {
				return nil //nolint:nilerr // it was stopped
			}
			return run(ctx)
		})
		if !errors.Is(err, webhooks.ErrReplaced) {
			return err
		}
		s.log.WarnContext(ctx, "another process has taken over, this one stands by", "group", group)
	}
}

// consumerLease is a name under which one process at a time reads a group.
type consumerLease struct {
	s            *stack
	group, name  string
	first, again time.Duration // how long it is waited for, and again when the lease ran out, while Redis answers
	taken        error         // says that another process has it
}

func (l *consumerLease) run(ctx context.Context, run func(context.Context) error) error {
	token := rand.Text() // of this process: it takes its own lease again after it, or Redis, stood still
	lease, err := l.take(ctx, token, l.first)
	if err != nil || lease == nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	kept := make(chan error, 1)
	go func() {
		last, err := l.keep(ctx, token, lease)
		if err != nil {
			cancel(err)
		}
		if last != nil {
			giving, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer stop()
			_ = last.Release(giving) // it runs out by itself
		}
		kept <- err
	}()
	err = run(ctx)
	cancel(nil)
	return errors.Join(err, <-kept)
}

// keep renews the lease until ctx ends. One that ran out, because Redis was away or this process stood still, is taken again.
func (l *consumerLease) keep(ctx context.Context, token string, lease *lua.Lock) (last *lua.Lock, err error) {
	for lease.RenewUntil(ctx) != nil {
		lease, err = l.take(ctx, token, l.again)
		if err != nil || lease == nil {
			return nil, err
		}
	}
	return lease, nil
}

// take waits until no other process has the name; nil: ctx ended first. Errors: taken.
func (l *consumerLease) take(ctx context.Context, token string, patience time.Duration) (*lua.Lock, error) {
	until := time.Now().Add(patience)
	for {
		lease, err := l.s.scripts.LockConsumer(ctx, l.group, l.name, token, nameFor)
		switch {
		case err == nil:
			return lease, nil
		case ctx.Err() != nil:
			return nil, nil //nolint:nilnil,nilerr // it was stopped
		case !errors.Is(err, lua.ErrLocked):
			until = time.Now().Add(patience) // Redis is away
		case time.Now().After(until):
			return nil, l.taken
		}
		if err := sleep.For(ctx, namePoll); err != nil {
			return nil, nil //nolint:nilnil,nilerr // it was stopped
		}
	}
}
