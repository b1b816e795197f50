package lua_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

// A dead process took a lease while Redis' clock was two hours ahead.
// It must last no longer than any other.
func TestLock_OfAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	clock, err := testenv.NewClock(t)
	if err != nil {
		t.Skip(err)
	}
	s, err := lua.New(clock.Redis().Client(), lua.Options{})
	require.NoError(t, err)
	clock.Set(2 * time.Hour)
	_, err = s.LockLeader(t.Context(), "dead", time.Second)
	require.NoError(t, err)
	clock.Set(0)
	require.Eventually(t, func() bool { // Redis expires it by its clock
		lease, err := s.LockLeader(t.Context(), "next", time.Second)
		if errors.Is(err, lua.ErrLocked) {
			return false
		}
		return err == nil && lease.Release(t.Context()) == nil
	}, time.Minute, 20*time.Millisecond)
}

// The same holds for the reader of a partition, and the loader of a lot.
func TestReaders_TakeWhatAClockThatWasAheadLeft(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t).Client()
	s, err := lua.New(rdb, lua.Options{})
	require.NoError(t, err)
	require.NoError(t, rdb.Set(t.Context(), "dibs:{p0}:reader", "dead", 2*time.Hour).Err())
	readers := lua.NewReaders(s, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	var running sync.WaitGroup
	running.Go(func() { readers.Run(ctx) })
	_, err = readers.Await(ctx, 0)
	require.NoError(t, err)
	cancel()
	running.Wait()
}

func TestFence_TakesALotThatAClockThatWasAheadLeft(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		_, err := b.fence("dead", lua.FenceAny)
		require.NoError(t, err)
		require.NoError(t, rdb.HSet(t.Context(), b.keys.State, "token_ms", time.Now().Add(2*time.Hour).UnixMilli()).Err())
		_, err = b.fence("next", lua.FenceAway)
		require.NoError(t, err)
	})
}

func TestLock_ThatIsLostIsGivenUpAtOnce(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t).Client()
	s, err := lua.New(rdb, lua.Options{})
	require.NoError(t, err)
	lock, err := s.LockLeader(t.Context(), "one", 300*time.Millisecond)
	require.NoError(t, err)
	require.NoError(t, rdb.Set(t.Context(), lua.LeaderKey, "another's", 0).Err())
	err = lock.RenewUntil(t.Context())
	require.ErrorIs(t, err, lua.ErrLocked)
	require.NotContains(t, err.Error(), "could not be renewed")
}

func TestOneHoldsALease(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		leader := func() string {
			name, err := b.s.Leader(t.Context())
			require.NoError(t, err)
			return name
		}
		require.Empty(t, leader())
		lease, err := b.s.LockLeader(t.Context(), "one", time.Minute)
		require.NoError(t, err)
		require.Equal(t, "one", leader())
		_, err = b.scripts().LockLeader(t.Context(), "one", time.Minute)
		require.ErrorIs(t, err, lua.ErrLocked)
		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, rdb.Del(t.Context(), lua.LeaderKey).Err())
		require.ErrorIs(t, lease.Renew(t.Context()), lua.ErrLocked, "it ran out")
		_, err = b.scripts().LockLeader(t.Context(), "one", time.Minute)
		require.NoError(t, err)
		require.ErrorIs(t, lease.Renew(t.Context()), lua.ErrLocked, "it is another's")
		require.NoError(t, lease.Release(t.Context()))
		_, err = b.s.LockLeader(t.Context(), "one", time.Minute)
		require.ErrorIs(t, err, lua.ErrLocked, "who lost it does not give it back for another")

		for range 2 { // a process that lost sight of its consumer's lease takes it again at once
			_, err = b.s.LockConsumer(t.Context(), "syncer", "one", "token-of-one", time.Hour)
			require.NoError(t, err)
		}
		_, err = b.s.LockConsumer(t.Context(), "syncer", "one", "token-of-two", time.Hour)
		require.ErrorIs(t, err, lua.ErrLocked)
	})
}
