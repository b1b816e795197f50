package cmd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"dibs/internal/config"
	"dibs/internal/sleep"
	"dibs/lua"
)

const (
	nameFor  = 2 * time.Second // a name is kept so long for a process that died
	namePoll = 100 * time.Millisecond
	forever  = 100 * 365 * 24 * time.Hour
)

// withConsumerLease runs a consumer of a group as long as no other process runs under its name: both would take the other's entries for
// their own.
func (s *stack) withConsumerLease(ctx context.Context, group string, run func(context.Context) error) error {
	return s.leased(ctx, group, s.cfg.Name, nameFor+time.Second, nameFor+time.Second, run)
}

// alone runs the one consumer of a group. A process that is not the first stands by; one that finds another in its place ends at once.
func (s *stack) alone(ctx context.Context, group string, run func(context.Context) error) error {
	return s.leased(ctx, group, group, forever, 0, run)
}

// leased runs a consumer under a name. It waits for the name as long as first, and again, when its lease ran out, for so long.
func (s *stack) leased(ctx context.Context, group, name string, first, again time.Duration, run func(context.Context) error) error {
	token := rand.Text() // of this process: it takes its own lease again after it, or Redis, stood still
	lease, err := s.takeName(ctx, group, name, token, first)
	if err != nil || lease == nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	kept := make(chan error, 1)
	go func() {
		last, err := s.keepName(ctx, group, name, token, again, lease)
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

// keepName renews the lease of a name until ctx ends. A lease that ran out, because Redis was away or this process stood still, is taken
// again.
func (s *stack) keepName(
	ctx context.Context, group, name, token string, again time.Duration, lease *lua.Lock,
) (last *lua.Lock, err error) {
	for lease.RenewUntil(ctx) != nil {
		lease, err = s.takeName(ctx, group, name, token, again)
		if err != nil || lease == nil {
			return nil, err
		}
	}
	return lease, nil
}

// takeName waits until no other process runs under a name; nil: ctx ended first. Errors: config.ErrConfig when one does, and Redis has
// answered for as long as patience.
func (s *stack) takeName(ctx context.Context, group, name, token string, patience time.Duration) (*lua.Lock, error) {
	until := time.Now().Add(patience)
	for {
		lease, err := s.scripts.LockConsumer(ctx, group, name, token, nameFor)
		switch {
		case err == nil:
			return lease, nil
		case ctx.Err() != nil:
			return nil, nil //nolint:nilnil,nilerr // it was stopped
		case !errors.Is(err, lua.ErrLocked):
			until = time.Now().Add(patience) // Redis is away
		case time.Now().After(until):
			return nil, fmt.Errorf("%w: %sNAME: another process reads as %q in group %s; give each process a name of its own, the same after"+
				" a restart", config.ErrConfig, config.Prefix, name, group)
		}
		if err := sleep.For(ctx, namePoll); err != nil {
			return nil, nil //nolint:nilnil,nilerr // it was stopped
		}
	}
}
