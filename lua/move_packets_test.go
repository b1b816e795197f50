package lua_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// packetsNamed are packets p<first> to p<last>, of as many minor units.
func packetsNamed(first, last int64) (all []models.Packet) {
	for n := first; n <= last; n++ {
		all = append(all, models.Packet{ID: fmt.Sprintf("p%d", n), Amount: n})
	}
	return all
}

// newPacketShard makes shard 3 of a packet campaign of 4, which has taken 7 moves and has no packets.
func newPacketShard(t *testing.T, rdb redis.UniversalClient) *bundle {
	t.Helper()
	return newBundle(t, rdb, func(c *models.Campaign) {
		c.ID, c.Shards, c.MovedNo, c.Kind, c.Currency, c.Total = models.ShardID(c.ID, 3), 4, 7, models.KindPacket, "EUR", 0
	})
}

func (b *bundle) grantPackets(no, releaseMs int64, packets []models.Packet) {
	b.t.Helper()
	m := &models.StockMove{No: no, Kind: models.MoveGrant, Want: int64(len(packets)), Packets: packets, ReleaseMs: releaseMs}
	amount, err := b.s.Move(b.t.Context(), b.c, m)
	require.NoError(b.t, err)
	require.Equal(b.t, m.Want, amount)
}

func (b *bundle) recallPackets(no, want int64) []models.Packet {
	b.t.Helper()
	m := &models.StockMove{No: no, Kind: models.MoveRecall, Want: want}
	amount, err := b.s.Move(b.t.Context(), b.c, m)
	require.NoError(b.t, err)
	require.Len(b.t, m.Packets, int(amount))
	return m.Packets
}

func (b *bundle) free() int64 { v := b.shard(); return v.Free() }

func (b *bundle) given(users ...string) (ids []string) {
	b.t.Helper()
	var reqs []lua.ClaimRequest
	for _, user := range users {
		reqs = append(reqs, want(user, 1, ""))
	}
	for _, r := range b.claim(reqs...) {
		ids = append(ids, string(r.Outcome)+" "+r.Claim.PacketID)
	}
	return ids
}

// Packets are dealt once however often a grant is sent, and given up once however often a recall is: it names the same ones each time.
func TestPacketsMoveOnceByName(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newPacketShard(t, rdb)
		require.Equal(t, []string{"dry "}, b.given("ada"), "other shards may have packets")
		for range 2 {
			b.grantPackets(8, 0, packetsNamed(1, 4))
			require.Equal(t, int64(4), b.free())
		}
		b.grantPackets(9, 1, packetsNamed(5, 6)) // released long ago, in a list of its own
		require.Equal(t, []string{"claimed p1"}, b.given("ada"))
		for range 2 {
			require.Equal(t, []models.Packet{{ID: "p6", Amount: 6}, {ID: "p5", Amount: 5}, {ID: "p4", Amount: 4}}, b.recallPackets(10, 3))
			require.Equal(t, int64(2), b.free())
		}
		require.Equal(t, []string{"claimed p2", "claimed p3", "dry "}, b.given("bob", "cy", "dan"))
		for range 2 {
			require.Empty(t, b.recallPackets(11, 9), "nothing is free")
		}
		b.grantPackets(12, 0, packetsNamed(6, 6))
		require.Equal(t, []string{"claimed p6", "dry "}, b.given("dan", "eve"))
		state, err := b.s.State(t.Context(), b.c.ID)
		require.NoError(t, err)
		require.Equal(t, []int64{12, 4, 4}, []int64{state.Moves, state.Total, state.Taken})
		require.Zero(t, rdb.Exists(t.Context(), b.keys.Waves).Val(), "no list is left")
	})
}

// A shard says dry, not not_released, of packets whose time has not come: others may have some.
func TestAPacketThatIsNotReleasedIsDryInAShard(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newPacketShard(t, rdb)
		b.grantPackets(8, 4_000_000_000_000, packetsNamed(1, 2))
		require.Equal(t, []string{"dry "}, b.given("ada"))
		b.grantPackets(9, 0, packetsNamed(3, 3))
		require.Equal(t, []string{"claimed p3", "dry "}, b.given("ada", "bob"))
	})
}

// A move changes nothing where packets were lost, where too many are to go, or fewer than it says.
func TestAMoveOfPacketsRefusesWhatCanNotBe(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newPacketShard(t, rdb)
		b.grantPackets(8, 0, packetsNamed(1, 3))
		_, err := b.move(9, models.MoveGrant, 5)
		require.ErrorIs(t, err, lua.ErrDamaged, "a grant without its packets")
		_, err = b.move(9, models.MoveRecall, lua.PushMax+1)
		require.ErrorIs(t, err, lua.ErrUnavailable)
		require.NoError(t, rdb.Del(t.Context(), b.keys.Packets(b.c.Epoch, 0)).Err())
		_, err = b.move(9, models.MoveRecall, 2)
		require.ErrorIs(t, err, lua.ErrDamaged)
		require.Equal(t, []int64{8, 3}, []int64{b.shard().Moves, b.free()}, "nothing was changed")
	})
}
