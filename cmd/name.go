package cmd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"dibs/config"
	"dibs/internal/sleep"
	"dibs/lua"
)

const (
	nameFor  = 2 * time.Second // a name is kept so long for a process that died
	namePoll = 100 * time.Millisecond
)

// underName runs a consumer of a group as long as no other process runs under its name: both would take the other's entries for
// their own.
func (s *stack) underName(ctx context.Context, group string, run func(context.Context) error) error {
	return s.leased(ctx, group, s.cfg.Name, !standby, run)
}

// standby has a process wait for as long as another one runs under the name.
const standby = true

// alone runs the one consumer of a group. A process that is not the first stands by.
func (s *stack) alone(ctx context.Context, group string, run func(context.Context) error) error {
	return s.leased(ctx, group, group, standby, run)
}

func (s *stack) leased(ctx context.Context, group, name string, standby bool, run func(context.Context) error) error {
	token := rand.Text() // of this process: it takes its own lease again after it, or Redis, stood still
	lease, err := s.takeName(ctx, group, name, token, standby)
	if err != nil || lease == nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	kept := make(chan error, 1)
	go func() {
		last, err := s.keepName(ctx, group, name, token, lease)
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
func (s *stack) keepName(ctx context.Context, group, name, token string, lease *lua.Lock) (last *lua.Lock, err error) {
	for lease.RenewUntil(ctx) != nil {
		if lease, err = s.takeName(ctx, group, name, token, !standby); err != nil || lease == nil {
			return nil, err
		}
	}
	return lease, nil
}

// takeName waits until nobody runs under a name; nil: ctx ended first. Errors: config.ErrConfig when somebody does, unless standby.
func (s *stack) takeName(ctx context.Context, group, name, token string, standby bool) (*lua.Lock, error) {
	until := time.Now().Add(nameFor + time.Second)
	for {
		lease, err := s.scripts.LockConsumer(ctx, group, name, token, nameFor)
		switch {
		case err == nil:
			return lease, nil
		case ctx.Err() != nil:
			return nil, nil //nolint:nilnil,nilerr // it was stopped
		case !errors.Is(err, lua.ErrLocked), standby:
			until = time.Now().Add(nameFor + time.Second) // Redis is away
		case time.Now().After(until):
			return nil, fmt.Errorf("%w: %sNAME: another process reads as %q in group %s; give each process a name of its own, the same after"+
				" a restart", config.ErrConfig, config.Prefix, name, group)
		}
		if err := sleep.For(ctx, namePoll); err != nil {
			return nil, nil //nolint:nilnil,nilerr // it was stopped
		}
	}
}
