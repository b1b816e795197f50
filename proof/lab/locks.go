package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bsm/redislock"

	"dibs/internal/sleep"
)

// ErrLeaseLost says that a claim was still at work when its lock was no longer
// its own.
var ErrLeaseLost = errors.New("lab: the lease ended before the claim did")

// unlockFunc releases a lock.
type unlockFunc func(context.Context) error

// locked is a strategy that sells under a key in Redis that only one can make.
type locked struct {
	// lock waits for the lock, and returns what releases it; nil when patience
	// ended first.
	lock func(ctx context.Context, c *counter) (unlockFunc, error)
	// then is done under the lock before anything else; nil is nothing.
	then func(ctx context.Context, c *counter) error
	// forgets says that a claim that fails never comes to the release.
	forgets bool
}

func lockEntry(name, title, flaw string, l locked) Entry {
	claim := func(c *counter, ctx context.Context, user string) (Outcome, error) {
		return l.claim(ctx, c, user)
	}
	return Entry{Name: name, Title: title, Flaw: flaw, Sound: true, DieAt: StepLocked,
		New: direct(claim, (*counter).prepareStock)}
}

// claim sells under the lock.
func (l locked) claim(ctx context.Context, c *counter, user string) (outcome Outcome, err error) {
	unlock, err := l.lock(ctx, c)
	if err != nil || unlock == nil {
		return Busy, err
	}
	defer func() {
		if err == nil || !l.forgets {
			give(ctx, &err, unlock)
		}
	}()
	if err := c.at(StepLocked); err != nil {
		return "", err
	}
	if l.then != nil {
		if err := l.then(ctx, c); err != nil {
			return "", err
		}
	}
	return c.sell(ctx, user)
}

// setNX makes a key without an end and without an owner.
func setNX(ctx context.Context, c *counter) (unlockFunc, error) { return c.makeKey(ctx, 0) }

// setNXPX makes the lock and its end in one command. The lock is no one's.
func setNXPX(ctx context.Context, c *counter) (unlockFunc, error) { return c.makeKey(ctx, c.Lease) }

// makeKey waits until it has made the lock's key. To release the lock is to
// delete the key, whoever's it is by then.
func (c *counter) makeKey(ctx context.Context, lasts time.Duration) (unlockFunc, error) {
	had, err := c.acquire(ctx, func(ctx context.Context) (bool, error) {
		return c.Redis.SetNX(ctx, c.lockKey(), "1", lasts).Result() // with a time: SET NX PX
	})
	if err != nil || !had {
		return nil, err
	}
	return func(ctx context.Context) error { return c.Redis.Del(ctx, c.lockKey()).Err() }, nil
}

// expire gives the lock an end, with a second command. Until that came through
// it has none.
func expire(ctx context.Context, c *counter) error {
	return c.Redis.PExpire(ctx, c.lockKey(), c.Lease).Err()
}

// ownerToken is SET NX PX with a value that only its holder knows;
// bsm/redislock compares it before it deletes. The library's own waiting is not
// used: at the end of patience it would cut a try short that may have
// succeeded, and leave a lock without a holder.
func ownerToken(ctx context.Context, c *counter) (unlockFunc, error) {
	locks := redislock.New(c.Redis)
	var lock *redislock.Lock
	had, err := c.acquire(ctx, func(ctx context.Context) (_ bool, err error) {
		lock, err = locks.Obtain(ctx, c.lockKey(), c.Lease, nil)
		if errors.Is(err, redislock.ErrNotObtained) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil || !had {
		return nil, err
	}
	return func(ctx context.Context) error {
		err := lock.Release(ctx)
		if errors.Is(err, redislock.ErrLockNotHeld) {
			return ErrLeaseLost
		}
		return err
	}, nil
}

// sellBoth is the slowest way of the batch stock article: the coupon's lock
// around a Redis counter and its row in MySQL, so that both change together.
func (c *counter) sellBoth(ctx context.Context, user string) (outcome Outcome, err error) {
	unlock, err := ownerToken(ctx, c)
	if err != nil || unlock == nil {
		return Busy, err
	}
	defer give(ctx, &err, unlock)
	outcome, err = c.sell(ctx, user)
	if err != nil || outcome != Claimed {
		return outcome, err
	}
	return Claimed, c.bookOne(ctx)
}

// pause is how long a waiter waits before it asks again: spread around
// RetryPause, so that a crowd does not ask at once.
func (e *Env) pause() time.Duration {
	return e.RetryPause/2 + rand.N(max(e.RetryPause, 1)) //nolint:gosec // no one gains by guessing it
}

// acquire tries for a lock until it is had or patience is over; had is false
// then.
func (e *Env) acquire(
	ctx context.Context, try func(context.Context) (bool, error),
) (had bool, err error) {
	deadline := time.Now().Add(e.Patience)
	for {
		had, err := try(ctx)
		if err != nil {
			return false, fmt.Errorf("lab: lock: %w", err)
		}
		if had {
			return true, nil
		}
		pause := e.pause()
		if time.Now().Add(pause).After(deadline) {
			return false, nil
		}
		if err := sleep.For(ctx, pause); err != nil {
			return false, err
		}
	}
}

// give releases a lock though the claim's context may be over, and adds its
// failure to err.
func give(ctx context.Context, err *error, release unlockFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ioTimeout)
	defer cancel()
	if failed := release(ctx); failed != nil {
		*err = errors.Join(*err, fmt.Errorf("lab: release: %w", failed))
	}
}
