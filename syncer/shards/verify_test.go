package shards

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// onRuns has servers tell other runs than theirs.
type onRuns struct {
	redis

	run  string
	away error
}

func (r *onRuns) Servers(_ context.Context, ids []string) (runs []string, err error) {
	runs = make([]string, len(ids))
	for i := range runs {
		runs[i] = r.run
	}
	return runs, r.away
}

// A shard whose server was started again is compared with MySQL once. If it was rolled back behind a debit, it takes no claims.
func TestVerify_FencesAShardThatWasRolledBack(t *testing.T) {
	t.Parallel()
	rdb, err := lua.Connect(testenv.SharedRedis(t).URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	scripts := syncertest.ScriptsOn(t, rdb, syncertest.Partitions)
	db := syncertest.OpenServer(t)
	m := New(db, scripts, syncertest.NewHydrator(t, db, scripts), syncertest.Quiet(), nil)
	servers := &onRuns{redis: scripts, run: "first"}
	m.redis = servers
	c := syncertest.CampaignOf(testenv.UniqueID(t, "c"), 80)
	c.Shards = 2
	_, _, err = syncertest.NewCampaigns(t, db, scripts).Create(t.Context(), c)
	require.NoError(t, err)
	_, err = m.Refill(t.Context(), c.ID, models.Need{Shard: 2, Units: 80})
	require.NoError(t, err)
	one := models.ShardID(c.ID, 1)
	view := func(id string) *lua.ShardView { return &scripts.Shards(t.Context(), []string{id})[0] }
	require.Equal(t, []int64{2, 0}, []int64{view(one).TSeq, view(one).Free()})
	db.Exec("UPDATE lots SET tseq = 2 WHERE id = ?", one) // the consumer wrote the debit

	require.NoError(t, rdb.HSet(t.Context(), scripts.KeysOf(one).State, "tseq", 1, "total", 20, "out:65", 0).Err())
	verify := func(want bool) {
		t.Helper()
		verified, err := m.Verify(t.Context(), one)
		require.NoError(t, err)
		require.Equal(t, want, verified)
	}
	verify(true)
	require.Equal(t, int64(20), view(one).Free(), "the server is the one as before")
	servers.run, servers.away = "", errors.New("away")
	verify(false)
	servers.run, servers.away = "second", nil
	verify(true)
	require.Equal(t, models.StatusFenced, view(one).Status, "claim.lua refuses its claims until it is proven")

	two := models.ShardID(c.ID, 2)
	db.Exec("UPDATE lots SET epoch = epoch + 1 WHERE id = ?", two)
	_, err = m.Verify(t.Context(), two)
	require.NoError(t, err)
	require.Equal(t, models.StatusFenced, view(two).Status, "MySQL knows a later load")
}
