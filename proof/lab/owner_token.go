package lab

import (
	"context"
	"errors"

	"github.com/bsm/redislock"
)

// ErrLeaseLost says that a claim was still at work when its lock was no longer its own.
var ErrLeaseLost = errors.New("lab: the lease ended before the claim did")

// ownerToken is SET NX PX with a value that only its holder knows; bsm/redislock compares it before it deletes.
type ownerToken struct {
	counter

	locks *redislock.Client
}

func ownerTokenStrategy() Entry {
	return Entry{
		Name: "owner-token", Title: "SET NX PX, owner token", Flaw: "a holder slower than its lease still lets a second in",
		Sound: true, DieAt: StepLocked,
		New: func(env Env) (Strategy, error) {
			return &ownerToken{counter: counter{env}, locks: redislock.New(env.Redis)}, nil
		},
	}
}

// Claim sells under the lock and releases it if it is still its own. ErrLeaseLost reports when it was not.
func (s *ownerToken) Claim(ctx context.Context, user string) (outcome Outcome, err error) {
	lock, err := s.obtain(ctx, s.locks)
	if err != nil || lock == nil {
		return Busy, err
	}
	defer give(ctx, &err, func(ctx context.Context) error { return release(ctx, lock) })
	if err := s.at(StepLocked); err != nil {
		return 0, err
	}
	return s.sell(ctx, user)
}

// obtain waits for the campaign's lock; nil when patience ended first. The library's own waiting would have a try cut
// short at the end of patience, and a try that is cut short may have succeeded: a lock without a holder.
func (e *Env) obtain(ctx context.Context, locks *redislock.Client) (lock *redislock.Lock, err error) {
	_, err = e.acquire(ctx, func(ctx context.Context) (bool, error) {
		lock, err = locks.Obtain(ctx, e.lockKey(), e.Lease, nil)
		if errors.Is(err, redislock.ErrNotObtained) {
			return false, nil
		}
		return err == nil, err
	})
	return lock, err
}

func release(ctx context.Context, lock *redislock.Lock) error {
	err := lock.Release(ctx)
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return ErrLeaseLost
	}
	return err
}
