package e2e

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

func (sl *sale) on(api, shard int, quantity int64) reply {
	sl.t.Helper()
	user := onShard(int(sl.next.Add(1)), sl.shards, shard)
	return callOn(sl.t, keepingAlive, http.MethodPost, sl.s.apis[api].url+"/v1/campaigns/"+sl.id+"/claims", "",
		map[string]any{"user_id": user, "quantity": quantity})
}

// Units left a shard and were sold elsewhere. Then its Redis is restored to
// an earlier state and has the units again. It must not sell them again,
// unless a claim arrives before the restore is detected.
func TestAShardPutBackBehindAMove(t *testing.T) {
	t.Parallel()
	const shards, total = 4, 80
	s := newSystem(t, setup{apis: 2, partitions: shards})
	sl := s.sell(t, total, shards, 1, evenly)
	for shard := 1; shard <= shards; shard++ {
		for api := range s.apis { // each process has seen each shard
			require.Equal(t, http.StatusCreated, sl.on(api, shard, 1).status)
		}
	}
	sold := int64(8)
	sl.requireBooks(sold)
	require.NoError(t, s.rdb.Save(t.Context()).Err())
	require.NoError(t, s.rdb.ConfigSet(t.Context(), "save", "").Err())
	sl.took(onShard(1000, shards, 2), total-sold) // all units go there
	sl.requireBooks(total)
	first := models.ShardID(sl.id, 1)
	view := func() lua.ShardView { return s.scripts.Shards(t.Context(), []string{first})[0] }
	before := view()
	require.Zero(t, before.Free())
	s.redis.Kill()
	s.redis.Start()
	require.Eventually(t, func() bool { v := view(); return errors.Is(v.Err, lua.ErrAbsent) || v.Err == nil && v.Free() == 0 }, upTimeout, pollEvery)
	for api := range s.apis {
		require.Equal(t, "sold_out", settled(func() string { return sl.on(api, 1, 1).code() }))
	}
	sl.requireBooks(total)
	got := runDibs(t, s.settings, "reconcile")
	require.Equal(t, exitOK, got.code, got.stdout+got.stderr)
}
