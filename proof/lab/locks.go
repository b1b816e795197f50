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

// ErrLeaseLost means that a claim lost its lock before it was done.
var ErrLeaseLost = errors.New("lab: the lease ended before the claim did")

type unlockFunc func(context.Context) error

// locked is a strategy that sells under a lock key in Redis.
type locked struct {
	// lock waits for the lock and returns its release; nil if
	// patience ended first.
	lock func(ctx context.Context, c *counter) (unlockFunc, error)
	// then runs first under the lock; nil is nothing.
	then func(ctx context.Context, c *counter) error
	// forgets: a failed claim never releases the lock.
	forgets bool
}

func lockEntry(name, title, flaw string, l locked) Entry {
	claim := func(c *counter, ctx context.Context, user string) (Outcome, error) {
		return l.claim(ctx, c, user)
	}
	return Entry{Name: name, Title: title, Flaw: flaw, Sound: true, DieAt: StepLocked,
		New: direct(claim, (*counter).prepareStock)}
}

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

// setNX makes a key without an expiry or an owner.
func setNX(ctx context.Context, c *counter) (unlockFunc, error) { return c.makeKey(ctx, 0) }

// setNXPX makes the lock with its expiry in one command, without an owner.
func setNXPX(ctx context.Context, c *counter) (unlockFunc, error) { return c.makeKey(ctx, c.Lease) }

// makeKey waits until it has made the lock's key. The release
// deletes the key, even if it is another's by then.
func (c *counter) makeKey(ctx context.Context, lasts time.Duration) (unlockFunc, error) {
	had, err := c.acquire(ctx, func(ctx context.Context) (bool, error) {
		return c.Redis.SetNX(ctx, c.lockKey(), "1", lasts).Result() // with a time: SET NX PX
	})
	if err != nil || !had {
		return nil, err
	}
	return func(ctx context.Context) error { return c.Redis.Del(ctx, c.lockKey()).Err() }, nil
}

// expire sets the lock's expiry with a second command. Until
// then it has none.
func expire(ctx context.Context, c *counter) error {
	return c.Redis.PExpire(ctx, c.lockKey(), c.Lease).Err()
}

// ownerToken is SET NX PX with a secret value, which
// bsm/redislock compares before it deletes. The library's own
// waiting is not used: at the end of patience it could abort a
// successful attempt, and leave a lock without a holder.
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
// around a Redis counter and its MySQL row, so that both change together.
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

// pause is a waiter's pause before a retry, spread around
// RetryPause, so that a crowd's retries don't coincide.
func (e *Env) pause() time.Duration {
	return e.RetryPause/2 + rand.N(max(e.RetryPause, 1)) //nolint:gosec // no one gains by guessing it
}

// acquire tries for a lock until it succeeds or patience ends;
// had is false then.
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

// give releases a lock even if the claim's context ended, and
// adds a failure to err.
func give(ctx context.Context, err *error, release unlockFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ioTimeout)
	defer cancel()
	if failed := release(ctx); failed != nil {
		*err = errors.Join(*err, fmt.Errorf("lab: release: %w", failed))
	}
}
