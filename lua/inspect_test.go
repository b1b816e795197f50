package lua_test

import (
	"fmt"
	"slices"
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

func TestPacketListsAreThoseThatClaimsAreTakenFrom(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPackets(t, rdb)
		p.push(0, "a", 1, "b", 2)
		later := noon.Add(time.Second).UnixMilli()
		p.push(time.Second, "c", 3)
		at := func() []lua.PacketList {
			lists, err := p.s.PacketLists(t.Context(), p.c.ID, p.c.Epoch)
			require.NoError(t, err)
			return lists
		}
		first, second := p.keys.Packets(p.c.Epoch, 0), p.keys.Packets(p.c.Epoch, later)
		require.Equal(t, []lua.PacketList{{first, 0, 2, true}, {second, later, 1, true}}, at())
		p.claim(want("u", 1, ""))
		require.Equal(t, []lua.PacketList{{first, 0, 1, true}, {second, later, 1, true}}, at())

		stray := p.keys.Packets(p.c.Epoch-1, 0)
		require.NoError(t, rdb.RPush(t.Context(), stray, "1:x").Err())
		require.NoError(t, rdb.ZAdd(t.Context(), p.keys.Waves, redis.Z{Score: 5, Member: stray}).Err())
		require.NoError(t, rdb.Set(t.Context(), second, "no list", 0).Err())
		require.Equal(t, []lua.PacketList{{first, 0, 1, true}, {stray, 5, 1, false}, {second, later, 0, true}}, at())

		many := []string{stray, "dibs:{p0}:none"}
		for i := range 1000 {
			many = append(many, p.keys.Packets(p.c.Epoch, int64(i+1)))
		}
		held, err := p.s.HeldPacketLists(t.Context(), append(many, first))
		require.NoError(t, err)
		require.Equal(t, []string{stray, first}, held)
		require.NoError(t, p.s.DropPacketLists(t.Context(), many))
		held, err = p.s.HeldPacketLists(t.Context(), slices.Concat(many, []string{first}))
		require.NoError(t, err)
		require.Equal(t, []string{first}, held)

		require.NoError(t, rdb.Set(t.Context(), p.keys.Waves, "no set", 0).Err())
		require.Empty(t, at())
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
