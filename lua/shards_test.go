package lua_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
)

// Units that became free between two views of a shard make them
// different, even if as many were taken.
func TestShardViewIsSameOnlyIfNothingCameBack(t *testing.T) {
	t.Parallel()
	var v lua.ShardView
	v.Epoch, v.Version, v.Seq, v.Ups = 1, 2, 3, 4
	same := v
	require.True(t, v.IsSame(&same))
	for name, change := range map[string]func(o *lua.ShardView){
		"load": func(o *lua.ShardView) { o.Epoch++ }, "definition": func(o *lua.ShardView) { o.Version++ },
		"ups":  func(o *lua.ShardView) { o.Ups++ },
		"away": func(o *lua.ShardView) { o.Err = lua.ErrUnavailable },
	} {
		other := v
		change(&other)
		require.False(t, v.IsSame(&other), name)
		require.False(t, other.IsSame(&v), name)
	}
	later := v
	later.Seq++
	require.True(t, later.IsSame(&v), "units that left")
	require.False(t, v.IsSame(&later), "Redis was rolled back")
}

func TestAShardIsDryAndNeverSoldOut(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.ID, c.Shards = models.ShardID(c.ID, 3), 4 })
		replies := b.claim(want("ada", 9, ""), want("bob", 2, ""), want("cy", 1, "k"), want("dan", 1, ""))
		require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeDry, models.OutcomeClaimed, models.OutcomeDry}, outcomesOf(replies))
		require.Equal(t, b.meta.CampaignID(), replies[0].Claim.CampaignID, "users know nothing of shards")
		entries, err := rdb.XRange(t.Context(), b.keys.Stream, "-", "+").Result()
		require.NoError(t, err)
		require.Len(t, entries, 2, "the last unit of a shard is no line of the campaign")
		for i, entry := range entries {
			e, err := event.Decode([]byte(entry.Values["payload"].(string)))
			require.NoError(t, err)
			require.Equal(t, []any{b.meta.CampaignID(), 3, int64(i + 1), b.c.ID}, []any{e.CampaignID, e.Shard, e.Seq, e.LotID()})
		}
		view := func() lua.ShardView { return b.s.Shards(t.Context(), []string{b.c.ID})[0] }
		before := view()
		first := replies[0].Claim
		record := lua.ClaimRecord{ID: []byte(first.ID), UserID: []byte("ada"), Seq: 1, Quantity: 9, At: first.ClaimedAt.Time}
		_, err = b.s.Release(t.Context(), b.c, []lua.Release{{Claim: record, EventID: uuid.NewString(), Event: []byte("{}")}})
		require.NoError(t, err)
		after := view()
		require.Equal(t, []int64{before.Ups + 1, 9}, []int64{after.Ups, after.Free()})
	})
}
