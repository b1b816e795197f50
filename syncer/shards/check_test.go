package shards_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/shards"
)

// A shard that forgot a debit and nothing else has units that went elsewhere. A round of the syncer puts it right.
func TestCheck_FindsAShardThatForgotADebit(t *testing.T) {
	t.Parallel()
	rdb, err := lua.Connect(testenv.SharedRedis(t).URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	scripts, db := syncertest.ScriptsOn(t, rdb, shardCount), syncertest.OpenServer(t)
	loader := syncertest.NewHydrator(t, db, scripts)
	mover := shards.New(db, scripts, loader, syncertest.Quiet(), nil)
	c := syncertest.CampaignOf(testenv.UniqueID(t, "c"), 80)
	c.Shards = shardCount
	_, _, err = syncertest.NewCampaigns(t, db, scripts).Create(t.Context(), c)
	require.NoError(t, err)
	refill, err := mover.Refill(t.Context(), c.ID, models.Need{Shard: 2, Units: 80})
	require.NoError(t, err)
	require.Zero(t, refill.SoldOutFrom)
	one := models.ShardID(c.ID, 1)
	view := func() *lua.ShardView { return &scripts.Shards(t.Context(), []string{one})[0] }
	before := view()
	require.Equal(t, []int64{2, 0}, []int64{before.TSeq, before.Free()})

	require.NoError(t, rdb.HSet(t.Context(), scripts.KeysOf(one).State, "tseq", 1, "total", 10, "out:65", 0).Err())
	require.Equal(t, int64(10), view().Free())
	_, err = mover.Check(t.Context())
	require.NoError(t, err)
	require.Zero(t, view().Free())
}

// A debit may wait for the disk for longer than an idle lot stays in Redis. Its taker is loaded, or the units would never arrive.
func TestATakerThatIsEvictedWhileADebitWaits(t *testing.T) {
	t.Parallel()
	rdb, err := lua.Connect(testenv.SharedRedis(t).URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	scripts := syncertest.ScriptsOn(t, rdb, shardCount)
	db := syncertest.OpenServer(t)
	mover := shards.New(db, scripts, syncertest.NewHydrator(t, db, scripts), syncertest.Quiet(), nil)
	c := syncertest.CampaignOf(testenv.UniqueID(t, "c"), 80)
	c.Shards = shardCount
	_, _, err = syncertest.NewCampaigns(t, db, scripts).Create(t.Context(), c)
	require.NoError(t, err)
	two := models.ShardID(c.ID, 2)
	need := models.Need{Shard: 2, Units: 15}
	evictions := 0
	mover.Observe(func(step string) {
		view := scripts.Shards(t.Context(), []string{two})[0]
		if step != "debited" || view.Err != nil {
			return
		}
		evictions++
		_, err := scripts.Evict(t.Context(), &models.Campaign{ID: two, Epoch: view.Epoch, TSeq: view.TSeq}, 0)
		if err == nil {
			err = db.Exec("UPDATE lots SET residency = ? WHERE id = ?", models.ResidencyEvicted, two).Error
		}
		if err != nil {
			panic(err)
		}
	})
	_, err = mover.Refill(t.Context(), c.ID, need)
	require.NoError(t, err)
	require.Equal(t, 1, evictions, "the first debit arrives")
	view := scripts.Shards(t.Context(), []string{two})[0]
	require.NoError(t, view.Err)
	require.GreaterOrEqual(t, view.Free(), need.Units)
	reserve := scripts.Shards(t.Context(), []string{models.ShardID(c.ID, models.ReserveLot)})[0]
	require.Equal(t, reserve.Out[2], view.In[models.ReserveLot])
}

// A giver of packets that is evicted while its debit waits takes the list of those debited with it. It is loaded, and its packets arrive.
func TestAGiverOfPacketsThatIsEvictedWhileADebitWaits(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	c := syncertest.CampaignOf(testenv.UniqueID(t, "c"), 0)
	c.Shards = 2
	c.Kind = models.KindPacket
	c.Currency = "CNY"
	_, _, err := syncertest.NewCampaigns(t, h.DB, h.Scripts).Create(t.Context(), c)
	require.NoError(t, err)
	h.AddPackets(c.ID, syncertest.ListOf("p", 8))
	mover := shards.New(h.DB, h.Scripts, h.Hydrator(), syncertest.Quiet(), nil)
	evictions := 0
	mover.Observe(func(step string) {
		if step != "debited" {
			return
		}
		h.Sync()
		time.Sleep(2 * time.Millisecond) //nolint:forbidigo // lots are idle after a millisecond
		evictions += h.Evict(time.Millisecond)
	})
	_, err = mover.Refill(t.Context(), c.ID, models.Need{Shard: 2, Units: 3})
	require.NoError(t, err)
	require.Positive(t, evictions)
	view := h.Scripts.Shards(t.Context(), []string{models.ShardID(c.ID, 2)})[0]
	require.NoError(t, view.Err)
	require.GreaterOrEqual(t, view.Free(), int64(3))
}
