package lua_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// newShard makes shard 3 of a campaign of 4, which has 10 units.
func newShard(t *testing.T, rdb redis.UniversalClient) *bundle {
	t.Helper()
	return newBundle(t, rdb, func(c *models.Campaign) { c.ID, c.Shards = models.ShardID(c.ID, 3), 4 })
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
		require.Equal(t, []int64{10, 4}, []int64{st.Total, int64(st.Meta.Shards)})
	})
}

// Packets stay with their shard: it says itself that they are gone, or not released yet.
func TestAShardOfPacketsIsNeverDry(t *testing.T) {
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
		require.Equal(t, []string{"sold_out "}, given("ada"))
		push := func(releaseMs, after, upto int64) {
			_, err := b.s.Push(t.Context(), b.c.ID, &lua.Push{
				Epoch: 1, After: after, Upto: upto, Units: 1, ReleaseMs: releaseMs, Packets: packetsNamed(upto, upto),
			})
			require.NoError(t, err)
		}
		push(4e12, 0, 3)
		require.Equal(t, []string{"not_released "}, given("ada"))
		push(0, 3, 7)
		require.Equal(t, []string{"claimed p7", "not_released "}, given("ada", "bob"))
	})
}
