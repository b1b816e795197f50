package lua

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
)

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("lua: locked")

// Lock is held by one process at a time. It runs out unless it is renewed.
type Lock struct {
	lock *redislock.Lock
	ttl  time.Duration
}

// LockCampaign takes the lock for loading a campaign, for ttl. Errors: ErrLocked, ErrUnavailable, ErrOutcomeUnknown (then the lock may
// be taken until it runs out).
func (s *Scripts) LockCampaign(ctx context.Context, campaignID string, ttl time.Duration) (*Lock, error) {
	return s.obtain(ctx, s.KeysOf(campaignID).Lock, ttl)
}

// LockLeader takes the lease of the syncer that leads, for ttl. Errors as LockCampaign.
func (s *Scripts) LockLeader(ctx context.Context, ttl time.Duration) (*Lock, error) {
	return s.obtain(ctx, LeaderKey, ttl)
}

func (s *Scripts) obtain(ctx context.Context, key string, ttl time.Duration) (*Lock, error) {
	lock, err := redislock.Obtain(ctx, s.rdb, key, ttl, nil)
	switch {
	case errors.Is(err, redislock.ErrNotObtained):
		return nil, fmt.Errorf("%w: %s", ErrLocked, key)
	case err != nil:
		return nil, sortError("lock", err)
	}
	return &Lock{lock: lock, ttl: ttl}, nil
}

// RenewUntil renews the lock each third of its time until ctx ends. It calls lost, and returns, when the lock has run out.
func (l *Lock) RenewUntil(ctx context.Context, lost func()) {
	ticker := time.NewTicker(l.ttl / 3)
	defer ticker.Stop()
	held := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			err := l.Renew(ctx)
			switch {
			case err == nil:
				held = now
			case errors.Is(err, ErrLocked), time.Since(held) > l.ttl:
				lost()
				return
			}
		}
	}
}

// Renew starts the time of the lock anew. Errors as LockCampaign; ErrLocked says that the lock has run out.
func (l *Lock) Renew(ctx context.Context) error {
	err := l.lock.Refresh(ctx, l.ttl, nil)
	switch {
	case errors.Is(err, redislock.ErrNotObtained):
		return fmt.Errorf("%w: %s ran out", ErrLocked, l.lock.Key())
	case err != nil:
		return sortError("renew", err)
	}
	return nil
}

// Release gives the lock back. A lock that has run out is left alone, as another process may hold it.
func (l *Lock) Release(ctx context.Context) error {
	if err := l.lock.Release(ctx); err != nil && !errors.Is(err, redislock.ErrLockNotHeld) {
		return sortError("unlock", err)
	}
	return nil
}
