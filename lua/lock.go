package lua

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
)

// ErrLocked reports that another process has the lock.
var ErrLocked = errors.New("lua: locked")

// Lock is a lease of one process. It expires unless it is renewed.
type Lock struct {
	lock *redislock.Lock
	ttl  time.Duration
	held time.Time // shortly before it was last granted
}

// LockLeader takes the lease of the leading syncer; Leader returns
// name. Errors: ErrLocked, ErrUnavailable, ErrOutcomeUnknown (the lock
// may be taken until it expires).
func (s *Scripts) LockLeader(ctx context.Context, name string, ttl time.Duration) (*Lock, error) {
	return s.obtain(ctx, LeaderKey, ttl, &redislock.Options{Metadata: name})
}

// LockConsumer takes the lease of a consumer's name in its group. The
// same token may take it again. Errors as LockLeader.
func (s *Scripts) LockConsumer(ctx context.Context, group, name, token string, ttl time.Duration) (*Lock, error) {
	return s.obtain(ctx, consumerKey(group, name), ttl, &redislock.Options{Token: token})
}

// LockSettling takes the lease of settling
// a campaign's total. Errors as LockLeader.
func (s *Scripts) LockSettling(ctx context.Context, campaignID string, ttl time.Duration) (*Lock, error) {
	return s.obtain(ctx, settlingKey(campaignID), ttl, nil)
}

// tokenLength is the length of the token before the name in a lock's value.
const tokenLength = 22

// Leader returns the name of the leading syncer, or "". Errors as State.
func (s *Scripts) Leader(ctx context.Context) (string, error) {
	value, err := s.rdb.Get(ctx, LeaderKey).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return "", nil
	case err != nil:
		return "", classifyError("leader", err)
	case len(value) <= tokenLength:
		return "one without a name", nil
	}
	return value[tokenLength:], nil
}

func (s *Scripts) obtain(ctx context.Context, key string, ttl time.Duration, how *redislock.Options) (*Lock, error) {
	started := time.Now()
	lock, err := redislock.Obtain(ctx, s.rdb, key, ttl, how)
	switch {
	case errors.Is(err, redislock.ErrNotObtained):
		return nil, errors.Join(fmt.Errorf("%w: %s", ErrLocked, key), s.shorten(ctx, key, ttl))
	case err != nil:
		return nil, classifyError("lock", err)
	}
	return &Lock{lock: lock, ttl: ttl, held: started}, nil
}

// shorten makes a lock expire within ttl. A longer
// one was taken while Redis' clock was ahead.
func (s *Scripts) shorten(ctx context.Context, key string, ttl time.Duration) error {
	err := s.rdb.Do(ctx, "PEXPIRE", key, ttl.Milliseconds(), "LT").Err()
	return classifyError("lock", err)
}

// RenewUntil renews the lock until ctx ends, and then returns nil. It returns
// ErrLocked as soon as another process may have the lock. Calls are bounded,
// so that a stalled one leaves time for the next. It serves one goroutine.
func (l *Lock) RenewUntil(ctx context.Context) error {
	for {
		ends := l.held.Add(l.ttl)
		if sleep.For(ctx, min(l.ttl/3, time.Until(ends))) != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		started := time.Now()
		asking, cancel := context.WithTimeout(ctx, min(max(readerAsk, l.ttl/6), time.Until(ends)))
		err := l.Renew(asking)
		cancel()
		switch {
		case err == nil:
			l.held = started
		case errors.Is(err, ErrLocked):
			return err
		case ctx.Err() == nil && !time.Now().Before(ends):
			return fmt.Errorf("%w: it could not be renewed: %w", ErrLocked, err)
		}
	}
}

// Renew extends the lock by its ttl. Errors
// as LockLeader; ErrLocked: it has expired.
func (l *Lock) Renew(ctx context.Context) error {
	err := l.lock.Refresh(ctx, l.ttl, nil)
	switch {
	case errors.Is(err, redislock.ErrNotObtained):
		return fmt.Errorf("%w: %s ran out", ErrLocked, l.lock.Key())
	case err != nil:
		return classifyError("renew", err)
	}
	return nil
}

// Release releases the lock. It ignores an
// expired one, as another process may have it.
func (l *Lock) Release(ctx context.Context) error {
	if err := l.lock.Release(ctx); err != nil && !errors.Is(err, redislock.ErrLockNotHeld) {
		return classifyError("unlock", err)
	}
	return nil
}
