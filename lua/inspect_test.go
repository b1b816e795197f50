package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

func TestScanUserRecordsFindsEveryUser(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.Total = 10_000 })
		n, err := b.s.CountClaimRecords(t.Context(), b.c.ID)
		require.NoError(t, err)
		require.Zero(t, n)
		found := map[string]string{}
		for call := range 10 { // more than one page, and more than Redis keeps in one piece
			b.claim(wants(fmt.Sprint("u", call), 100)...)
		}
		held, err := rdb.HGetAll(t.Context(), b.keys.Users).Result()
		require.NoError(t, err)
		require.NoError(t, b.s.ScanUserRecords(t.Context(), b.c.ID, func(user, record string) { found[user] = record }))
		require.Len(t, found, 1000)
		require.Equal(t, held, found)
		n, err = b.s.CountClaimRecords(t.Context(), b.c.ID)
		require.NoError(t, err)
		require.Equal(t, int64(1000), n)

		require.NoError(t, rdb.Set(t.Context(), b.keys.Users, "no hash", 0).Err())
		require.Error(t, b.s.ScanUserRecords(t.Context(), b.c.ID, func(_, _ string) {}))
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
