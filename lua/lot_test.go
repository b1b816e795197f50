package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// newShard makes shard 3 of a campaign of 4, which has 10 units.
func newShard(t *testing.T, rdb redis.UniversalClient) *bundle {
	t.Helper()
	return newBundle(t, rdb, func(c *models.Campaign) { c.ID, c.Shards, c.TSeq = models.ShardID(c.ID, 3), 4, 7 })
}

func (b *bundle) shard() lua.ShardView { return b.s.Shards(b.t.Context(), []string{b.c.ID})[0] }

func TestAReleaseIsSeenInUps(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newShard(t, rdb)
		claim := b.claim(want("ada", 2, ""))[0].Claim
		before := b.shard()
		record := lua.ClaimRecord{ID: []byte(claim.ID), UserID: []byte("ada"), Seq: 1, Quantity: 2, At: claim.ClaimedAt.Time}
		_, err := b.s.Release(t.Context(), b.c, []lua.Release{{Claim: record, EventID: uuid.NewString(), Event: []byte("{}")}})
		require.NoError(t, err)
		after := b.shard()
		require.Equal(t, before.Ups+1, after.Ups)
		require.Equal(t, int64(10), after.Free())
	})
}

func TestAShardIsDryAndNeverSoldOut(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newShard(t, rdb)
		replies := b.claim(want("ada", 9, ""), want("bob", 2, ""), want("cy", 1, "k"), want("dan", 1, ""))
		require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeDry, models.OutcomeClaimed, models.OutcomeDry}, outcomesOf(replies))
		require.Equal(t, b.meta.CampaignID(), replies[0].Claim.CampaignID, "users know nothing of shards")
		entries, err := rdb.XRange(t.Context(), b.keys.Stream, "-", "+").Result()
		require.NoError(t, err)
		require.Len(t, entries, 2, "the last unit of a shard is no line of the campaign")
		for i, entry := range entries {
			e, err := models.DecodeEvent([]byte(entry.Values["payload"].(string)))
			require.NoError(t, err)
			require.Equal(t, []any{b.meta.CampaignID(), 3, int64(i + 1), b.c.ID}, []any{e.CampaignID, e.Shard, e.Seq, e.LotID()})
		}
	})
}

// A definition that reaches a shard late must not set what it has.
func TestAChangeLeavesWhatAShardHas(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newShard(t, rdb)
		b.c.Total = 99
		st := b.adjust(func(c *models.Campaign) { c.PerUser = 2 })
		require.Equal(t, []int64{10, 7, 4}, []int64{st.Total, st.TSeq, int64(st.Meta.Shards)})
	})
}

// A shard says dry, not not_released, when it has no packets: others may have some.
func TestAPacketThatIsNotReleasedIsDryInAShard(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) {
			c.ID, c.Shards, c.Kind, c.Currency, c.Total = models.ShardID(c.ID, 3), 4, models.KindPacket, "EUR", 0
		})
		given := func(users ...string) (got []string) {
			for _, user := range users {
				r := b.claim(want(user, 1, ""))[0]
				got = append(got, string(r.Outcome)+" "+r.Claim.PacketID)
			}
			return got
		}
		credit := &lua.Credit{Seen: lua.Position{Epoch: 1}, Peer: models.ReserveLot, PeerLoad: 1, Upto: 1, Packets: []string{"4000000000000:1:p1"}}
		_, err := b.s.Credit(t.Context(), b.c, credit)
		require.NoError(t, err)
		require.Equal(t, []string{"dry "}, given("ada"))
		_, err = b.s.Credit(t.Context(), b.c, &lua.Credit{
			Seen: lua.Position{Epoch: 1}, Peer: models.ReserveLot, PeerLoad: 1, Before: 1, Upto: 2, Packets: []string{"0:3:p3"},
		})
		require.NoError(t, err)
		require.Equal(t, []string{"claimed p3", "dry "}, given("ada", "bob"))
	})
}

// Two debits that were planned by the same view of a lot give different packets away.
func TestTwoDebitsDoNotShareAPacket(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newLots(t, rdb, models.KindPacket, 0)
		_, err := l.s.Push(t.Context(), l.lots[1].ID, &lua.Push{Epoch: 1, Upto: 5, Units: 5, Packets: packetsNamed(1, 5)})
		require.NoError(t, err)
		for _, to := range []int{2, 3} {
			_, err := l.debit(1, to, 0, 4, nil)
			require.NoError(t, err)
			_, err = l.credit(to, 1, 1, l.out(1, to))
			require.NoError(t, err)
		}
		list := func(lot int) []string {
			return rdb.LRange(t.Context(), l.s.KeysOf(l.lots[lot].ID).Packets(1, 0), 0, -1).Val()
		}
		require.Equal(t, [][]string{{"1:p1", "2:p2", "3:p3", "4:p4"}, {"5:p5"}}, [][]string{list(2), list(3)})
	})
}

// A lot that gives units away is in use: it is not evicted.
func TestADebitKeepsALotInRedis(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newLots(t, rdb, models.KindCoupon, 10)
		state := l.s.KeysOf(l.lots[1].ID).State
		require.NoError(t, rdb.HSet(t.Context(), state, "last_ms", 1, "starts_at_ms", 0).Err())
		_, err := l.debit(1, 2, 0, 6, nil)
		require.NoError(t, err)
		idle := *l.lots[1]
		idle.TSeq = 1
		gone, err := l.s.Evict(t.Context(), &idle, time.Hour)
		require.NoError(t, err)
		require.False(t, gone)
		require.NoError(t, rdb.HSet(t.Context(), state, "last_ms", 1).Err())
		gone, err = l.s.Evict(t.Context(), &idle, time.Hour)
		require.NoError(t, err)
		require.True(t, gone)
	})
}

// A lot of packets that lost a debit can't make up for it by its counters: it is fenced, and its load finds out which packets went.
func TestALotThatLostADebitOfPacketsIsFenced(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newLots(t, rdb, models.KindPacket, 0)
		_, err := l.s.Push(t.Context(), l.lots[1].ID, &lua.Push{Epoch: 1, Upto: 2, Units: 2, Packets: packetsNamed(1, 2)})
		require.NoError(t, err)
		_, err = l.debit(1, 2, 0, 0, map[int]int64{2: 1})
		require.ErrorIs(t, err, lua.ErrPeer)
		require.Equal(t, "fenced", rdb.HGet(t.Context(), l.s.KeysOf(l.lots[1].ID).State, "status").Val())
		require.Zero(t, l.out(1, 2))
	})
}

// A lot that is fenced or being loaded learns of a load of its peer, and is credited nothing.
func TestAFencedLotLearnsOfLoadsOfItsPeers(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newLots(t, rdb, models.KindCoupon, 10)
		for i, status := range []string{"fenced", "loading"} {
			load := int64(i + 2)
			state := l.s.KeysOf(l.lots[2].ID).State
			require.NoError(t, rdb.HSet(t.Context(), state, "status", status).Err())
			_, err := l.s.Credit(t.Context(), l.lots[2], &lua.Credit{Seen: lua.Position{Epoch: 1}, Peer: 1, PeerLoad: load})
			require.NoError(t, err)
			require.Equal(t, load, l.field(2, "load:1"))
			_, err = l.s.Credit(t.Context(), l.lots[2], &lua.Credit{Seen: lua.Position{Epoch: 1}, Peer: 1, PeerLoad: load, Upto: 1})
			require.ErrorIs(t, err, lua.ErrOther)
			require.Zero(t, l.in(2, 1))
		}
	})
}

// What a load staged of packets that the lot has debited goes by itself, unless that load came to be.
func TestStagedPacketsExpireUnlessTheyAreLoaded(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := newLots(t, rdb, models.KindPacket, 0)
		require.NoError(t, l.s.Fence(t.Context(), l.lots[1].ID, 1))
		next := *l.lots[1]
		next.Epoch = 2
		r, err := l.s.NewRebuild(t.Context(), &next, 1, true)
		require.NoError(t, err)
		var packets []string
		for n := range 2_000 {
			packets = append(packets, fmt.Sprint("0:1:p", n))
		}
		r.SetTransfers(0, 1, &lua.Transfers{Out: map[int]int64{2: 2_000}})
		require.NoError(t, r.AddDebited(t.Context(), 2, packets))
		list := l.s.KeysOf(next.ID).Out(2, 2)
		require.Positive(t, rdb.TTL(t.Context(), list).Val())
		loaded, err := r.Finish(t.Context())
		require.NoError(t, err)
		require.True(t, loaded)
		require.Negative(t, rdb.TTL(t.Context(), list).Val())
		require.EqualValues(t, 2_000, rdb.LLen(t.Context(), list).Val())
	})
}

func TestAShardThatForgotADebitTakesNoClaims(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newShard(t, rdb)
		_, err := b.s.Debit(t.Context(), b.c, &lua.Debit{Epoch: 1, Peer: 1, Units: 4})
		require.NoError(t, err)
		_, view, err := b.s.ClaimAfter(t.Context(), b.meta, lua.Position{}, []lua.ClaimRequest{want("ada", 1, "")})
		require.NoError(t, err)
		require.Equal(t, lua.Position{Epoch: 1, Seq: 1, TSeq: 8}, view.Position)
		require.NoError(t, rdb.HSet(t.Context(), b.keys.State, "tseq", 7, "total", 10).Err()) // it was rolled back
		replies, _, err := b.s.ClaimAfter(t.Context(), b.meta, view.Position, []lua.ClaimRequest{want("bob", 1, "")})
		require.NoError(t, err)
		require.Equal(t, models.OutcomeRolledBack, replies[0].Outcome)
		require.ErrorIs(t, b.shard().Err, lua.ErrAbsent, "and of no one else")
	})
}
