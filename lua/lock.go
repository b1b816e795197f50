package lua

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
)

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("lua: locked")

// Lock is held by one process at a time. It runs out unless it is renewed.
type Lock struct {
	lock *redislock.Lock
	ttl  time.Duration
	held time.Time // shortly before it was last granted: by then it surely ran
}

// LockCampaign takes the lock for loading a campaign, for ttl. Errors: ErrLocked, ErrUnavailable, ErrOutcomeUnknown (then the lock may
// be taken until it runs out).
func (s *Scripts) LockCampaign(ctx context.Context, campaignID string, ttl time.Duration) (*Lock, error) {
	return s.obtain(ctx, s.KeysOf(campaignID).Lock, ttl, nil)
}

// Locks are locks that LockCampaigns took.
type Locks struct {
	s     *Scripts
	token string
	ids   []string
}

// LockCampaigns takes the locks of those campaigns that no one has the lock of, for ttl, in one round trip. They are not renewed. Errors:
// ErrUnavailable, ErrOutcomeUnknown (then locks may be taken until they run out).
func (s *Scripts) LockCampaigns(ctx context.Context, campaignIDs []string, ttl time.Duration) (*Locks, error) {
	l := &Locks{s: s, token: rand.Text()}
	taken := make([]*redis.BoolCmd, len(campaignIDs))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range campaignIDs {
			taken[i] = p.SetNX(ctx, s.KeysOf(id).Lock, l.token, ttl)
		}
		return nil
	})
	if err != nil {
		return nil, classifyError("lock", err)
	}
	for i, id := range campaignIDs {
		if taken[i].Val() {
			l.ids = append(l.ids, id)
		}
	}
	return l, nil
}

// CampaignIDs are the campaigns whose locks were taken.
func (l *Locks) CampaignIDs() []string { return l.ids }

// unlockSource deletes a lock that still is its holder's.
const unlockSource = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return {0}"

// Release gives the locks back. Those that have run out are left alone, as another process may hold them.
func (l *Locks) Release(ctx context.Context) error {
	calls := make([]call, len(l.ids))
	for i, id := range l.ids {
		calls[i] = call{[]string{l.s.KeysOf(id).Lock}, []any{l.token}}
	}
	var failed []error
	for _, a := range l.s.runPipelined(ctx, l.s.unlock, calls) {
		failed = append(failed, a.err)
	}
	return errors.Join(failed...)
}

// LockLeader takes the lease of the syncer that leads, for ttl; name is told by Leader. Errors as LockCampaign.
func (s *Scripts) LockLeader(ctx context.Context, name string, ttl time.Duration) (*Lock, error) {
	return s.obtain(ctx, LeaderKey, ttl, &redislock.Options{Metadata: name})
}

// LockConsumer takes the lease of a consumer's name in its group, for ttl; who has it under the same token gets it again. Errors as
// LockCampaign.
func (s *Scripts) LockConsumer(ctx context.Context, group, name, token string, ttl time.Duration) (*Lock, error) {
	return s.obtain(ctx, consumerKey(group, name), ttl, &redislock.Options{Token: token})
}

// tokenLength is how long the token is before the holder's name in the value of a lock.
const tokenLength = 22

// Leader is the name of the syncer that leads; "" when none does. Errors as State.
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
	begun := time.Now()
	lock, err := redislock.Obtain(ctx, s.rdb, key, ttl, how)
	switch {
	case errors.Is(err, redislock.ErrNotObtained):
		return nil, errors.Join(fmt.Errorf("%w: %s", ErrLocked, key), s.shorten(ctx, key, ttl))
	case err != nil:
		return nil, classifyError("lock", err)
	}
	return &Lock{lock: lock, ttl: ttl, held: begun}, nil
}

// shorten has a lock run out within ttl, unless its holder renews it. One that lasts longer was taken while Redis' clock was ahead.
func (s *Scripts) shorten(ctx context.Context, key string, ttl time.Duration) error {
	err := s.rdb.Do(ctx, "PEXPIRE", key, ttl.Milliseconds(), "LT").Err()
	return classifyError("lock", err)
}

// RenewUntil renews the lock each third of its time until ctx ends, and then returns nil. It returns ErrLocked as soon as another
// process may hold the lock. It is for one goroutine.
func (l *Lock) RenewUntil(ctx context.Context) error {
	for {
		ends := l.held.Add(l.ttl)
		if sleep.For(ctx, min(l.ttl/3, time.Until(ends))) != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		begun := time.Now()
		asking, cancel := context.WithDeadline(ctx, ends)
		err := l.Renew(asking)
		cancel()
		switch {
		case err == nil:
			l.held = begun
		case errors.Is(err, ErrLocked):
			return err
		case ctx.Err() == nil && !time.Now().Before(ends):
			return fmt.Errorf("%w: it could not be renewed: %w", ErrLocked, err)
		}
	}
}

// Renew starts the time of the lock again. Errors as LockCampaign; ErrLocked says that the lock has run out.
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

// Release gives the lock back. A lock that has run out is left alone, as another process may hold it.
func (l *Lock) Release(ctx context.Context) error {
	if err := l.lock.Release(ctx); err != nil && !errors.Is(err, redislock.ErrLockNotHeld) {
		return classifyError("unlock", err)
	}
	return nil
}
