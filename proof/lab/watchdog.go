package lab

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

var (
	//go:embed watchdog_take.lua
	watchdogTakeSource string
	//go:embed watchdog_renew.lua
	watchdogRenewSource string
	//go:embed watchdog_give.lua
	watchdogGiveSource string
)

// lease is a re-entrant lock with an owner and an end: what Redisson's RLock is. While it is held, its end is put off
// each third of the lease; when its holder dies, no one puts it off any more. No Go library that is well kept has both.
type lease struct {
	rdb   *redis.Client
	key   string
	lasts time.Duration

	take, renew, give *redis.Script
}

func newLease(rdb *redis.Client, key string, lasts time.Duration) *lease {
	return &lease{
		rdb: rdb, key: key, lasts: lasts,
		take:  redis.NewScript(watchdogTakeSource),
		renew: redis.NewScript(watchdogRenewSource),
		give:  redis.NewScript(watchdogGiveSource),
	}
}

// tryTake takes the lock for an owner, once more if it is the owner's already; false when it is another's.
func (l *lease) tryTake(ctx context.Context, owner string) (bool, error) {
	return l.take.Run(ctx, l.rdb, []string{l.key}, owner, l.lasts.Milliseconds()).Bool()
}

// giveBack gives back one taking. ErrLeaseLost: it was not the owner's any more, and nothing was done.
func (l *lease) giveBack(ctx context.Context, owner string) error {
	held, err := l.give.Run(ctx, l.rdb, []string{l.key}, owner).Bool()
	if err == nil && !held {
		err = ErrLeaseLost
	}
	return err
}

// keep renews the lease until stop is called. held ends, with ErrLeaseLost, when it can't be.
func (l *lease) keep(ctx context.Context, owner string) (held context.Context, stop func()) {
	held, lose := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lose(l.renewEachThird(held, owner))
	}()
	return held, func() {
		lose(nil)
		<-ended
	}
}

func (l *lease) renewEachThird(ctx context.Context, owner string) error {
	renewed := time.Now()
	ticker := time.NewTicker(l.lasts / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		sent := time.Now()
		held, err := l.renew.Run(ctx, l.rdb, []string{l.key}, owner, l.lasts.Milliseconds()).Bool()
		switch {
		case err == nil && held:
			renewed = sent
		case err == nil || time.Since(renewed) > l.lasts:
			return ErrLeaseLost
		}
	}
}

// watchdog sells under such a lease.
type watchdog struct {
	counter

	lease *lease
}

func watchdogStrategy() Entry {
	return Entry{
		Name: "watchdog", Title: "watchdog lease, re-entrant", Flaw: "a holder that froze and wakes still believes; one claim at a time",
		Sound: true, DieAt: StepLocked,
		New: func(env Env) (Strategy, error) {
			return &watchdog{counter: counter{env}, lease: newLease(env.Redis, env.lockKey(), env.Lease)}, nil
		},
	}
}

// Prepare writes the stock and has Redis compile the scripts.
func (s *watchdog) Prepare(ctx context.Context) error {
	for _, script := range []*redis.Script{s.lease.take, s.lease.renew, s.lease.give} {
		if err := script.Load(ctx, s.Redis).Err(); err != nil {
			return fmt.Errorf("lab: preload: %w", err)
		}
	}
	return s.counter.Prepare(ctx)
}

// Claim sells under a lease that lasts as long as the claim, and stops when the lease is lost.
func (s *watchdog) Claim(ctx context.Context, user string) (outcome Outcome, err error) {
	owner := uuid.NewString()
	had, err := s.acquire(ctx, func(ctx context.Context) (bool, error) { return s.lease.tryTake(ctx, owner) })
	if err != nil || !had {
		return Busy, err
	}
	defer give(ctx, &err, func(ctx context.Context) error { return s.lease.giveBack(ctx, owner) })
	held, stop := s.lease.keep(ctx, owner)
	defer stop()
	if err := s.at(StepLocked); err != nil {
		return 0, err
	}
	return s.sell(held, user)
}
