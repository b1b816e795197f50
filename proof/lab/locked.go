package lab

import (
	"context"
	"errors"
	"fmt"

	"github.com/bsm/redislock"
)

// ErrLeaseLost says that a claim was still at work when its lock was no longer its own.
var ErrLeaseLost = errors.New("lab: the lease ended before the claim did")

// locked sells under a lock of the campaign.
type locked struct {
	counter

	// lock waits for the lock, and returns what releases it; nil when patience ended first.
	lock func(ctx context.Context, c *counter) (unlock func(context.Context) error, err error)
	// then is done under the lock before anything else; nil is nothing.
	then func(ctx context.Context, c *counter) error
	// forgets says that a claim that fails never comes to the release.
	forgets bool
}

// entry is a strategy that locks with lock.
func (s locked) entry(name, title, flaw string) Entry {
	return Entry{Name: name, Title: title, Flaw: flaw, Sound: true, DieAt: StepLocked, New: func(env Env) (Strategy, error) {
		return &locked{counter: counter{env}, lock: s.lock, then: s.then, forgets: s.forgets}, nil
	}}
}

// lockStrategies lock by a key in Redis that only one can make, each more careful than the one before.
func lockStrategies() []Entry {
	return []Entry{
		locked{lock: setNX, forgets: true}.entry("setnx", "SETNX", "a holder that fails or dies leaves the lock for ever"),
		locked{lock: setNX}.entry("setnx-defer", "SETNX, deferred unlock", "a holder that dies leaves the lock for ever"),
		locked{lock: setNX, then: expire}.entry("setnx-expire", "SETNX, then EXPIRE", "who dies between the two leaves the lock for ever"),
		locked{lock: setNXPX}.entry("set-nx-px", "SET NX PX",
			"a holder slower than its lease lets a second in, then frees the second's lock"),
		locked{lock: ownerToken}.entry("owner-token", "SET NX PX, owner token", "a holder slower than its lease still lets a second in"),
	}
}

// Claim sells under the lock.
func (s *locked) Claim(ctx context.Context, user string) (outcome Outcome, err error) {
	unlock, err := s.lock(ctx, &s.counter)
	if err != nil || unlock == nil {
		return Busy, err
	}
	defer func() {
		if err == nil || !s.forgets {
			give(ctx, &err, unlock)
		}
	}()
	if err := s.at(StepLocked); err != nil {
		return 0, err
	}
	if s.then != nil {
		if err := s.then(ctx, &s.counter); err != nil {
			return 0, err
		}
	}
	return s.sell(ctx, user)
}

// makeKey waits until it has made the lock's key with try. To release the lock is to delete the key, whoever's it is by then.
func (c *counter) makeKey(ctx context.Context, try func(context.Context) (bool, error)) (unlock func(context.Context) error, err error) {
	had, err := c.acquire(ctx, try)
	if err != nil || !had {
		return nil, err
	}
	return func(ctx context.Context) error { return c.Redis.Del(ctx, c.lockKey()).Err() }, nil
}

// setNX makes a key without an end and without an owner.
func setNX(ctx context.Context, c *counter) (unlock func(context.Context) error, err error) {
	return c.makeKey(ctx, func(ctx context.Context) (bool, error) { return c.Redis.SetNX(ctx, c.lockKey(), "1", 0).Result() })
}

// expire gives the lock an end, with a second command. Until that came through it has none.
func expire(ctx context.Context, c *counter) error {
	if err := c.Redis.PExpire(ctx, c.lockKey(), c.Lease).Err(); err != nil {
		return fmt.Errorf("lab: expire: %w", err)
	}
	return nil
}

// setNXPX makes the lock and its end in one command. The lock is no one's.
func setNXPX(ctx context.Context, c *counter) (unlock func(context.Context) error, err error) {
	return c.makeKey(ctx, func(ctx context.Context) (bool, error) {
		return c.Redis.SetNX(ctx, c.lockKey(), "1", c.Lease).Result() // with a time go-redis sends SET NX PX
	})
}

// ownerToken is SET NX PX with a value that only its holder knows; bsm/redislock compares it before it deletes, and ErrLeaseLost reports
// when it was another's. The library's own waiting would have a try cut short at the end of patience, and a try that is cut short may have
// succeeded: a lock without a holder.
func ownerToken(ctx context.Context, c *counter) (unlock func(context.Context) error, err error) {
	locks := redislock.New(c.Redis)
	var lock *redislock.Lock
	had, err := c.acquire(ctx, func(ctx context.Context) (bool, error) {
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
