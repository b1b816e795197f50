package lab

import (
	"context"
	_ "embed"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
)

var (
	//go:embed watchdog_take.lua
	watchdogTakeSource string
	//go:embed watchdog_renew.lua
	watchdogRenewSource string
	//go:embed watchdog_give.lua
	watchdogGiveSource string

	watchdogTake  = redis.NewScript(watchdogTakeSource)
	watchdogRenew = redis.NewScript(watchdogRenewSource)
	watchdogGive  = redis.NewScript(watchdogGiveSource)
)

// lease is a re-entrant lock with an owner and an expiry, like Redisson's
// RLock. While held, it is renewed each third of the lease; after its
// holder's death it expires. No well-maintained Go library has both.
type lease struct {
	rdb   *redis.Client
	key   string
	owner string
	lasts time.Duration
}

// try takes the lock, again if the owner has it; false if another has it.
func (l *lease) try(ctx context.Context) (bool, error) {
	return watchdogTake.Run(ctx, l.rdb, []string{l.key}, l.owner, l.lasts.Milliseconds()).Bool()
}

// giveBack releases one taking. ErrLeaseLost: the lock was
// another's, and nothing was done.
func (l *lease) giveBack(ctx context.Context) error {
	held, err := watchdogGive.Run(ctx, l.rdb, []string{l.key}, l.owner).Bool()
	if err == nil && !held {
		err = ErrLeaseLost
	}
	return err
}

// renew renews the lease each third of it, until ctx ends or the
// lease is lost.
func (l *lease) renew(ctx context.Context) error {
	renewed := time.Now()
	for sleep.For(ctx, l.lasts/3) == nil {
		sent := time.Now()
		held, err := watchdogRenew.Run(ctx, l.rdb, []string{l.key}, l.owner, l.lasts.Milliseconds()).Bool()
		switch {
		case err == nil && held:
			renewed = sent
		case err == nil || time.Since(renewed) > l.lasts:
			return ErrLeaseLost
		}
	}
	return nil
}

// sellRenewed sells under a lease renewed for the whole claim,
// and stops if it is lost.
func (c *counter) sellRenewed(ctx context.Context, user string) (outcome Outcome, err error) {
	l := &lease{rdb: c.Redis, key: c.lockKey(), owner: uuid.NewString(), lasts: c.Lease}
	had, err := c.acquire(ctx, l.try)
	if err != nil || !had {
		return Busy, err
	}
	defer give(ctx, &err, l.giveBack)
	held, lose := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	defer renewing.Wait()
	defer lose(nil)
	renewing.Go(func() { lose(l.renew(held)) })
	if err := c.at(StepLocked); err != nil {
		return "", err
	}
	return c.sell(held, user)
}
