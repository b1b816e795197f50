package lua_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
)

func TestCountClaimRecords(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		for _, want := range []int64{0, 3} {
			n, err := b.s.CountClaimRecords(t.Context(), b.c.ID)
			require.NoError(t, err)
			require.Equal(t, want, n)
			b.claim(wants("u", 3)...)
		}
	})
}

func TestOneHoldsTheLeadersLease(t *testing.T) {
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
	})
}
