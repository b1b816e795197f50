package shards_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/shards"
)

// A shard that forgot a debit and nothing else has units that went elsewhere. A round of the syncer puts it right.
func TestALookFindsAShardThatForgotADebit(t *testing.T) {
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
	_, err = mover.Look(t.Context())
	require.NoError(t, err)
	require.Zero(t, view().Free())
}
