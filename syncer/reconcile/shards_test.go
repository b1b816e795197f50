package reconcile_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/reconcile"

	"github.com/stretchr/testify/require"
)

// spread is a campaign of several shards in Redis.
func spread(h *syncertest.Stack, total int64, shards int) (id string) {
	h.T.Helper()
	id = h.Create(total, func(c *models.Campaign) { c.Shards = shards })
	for shard := 1; shard <= shards; shard++ {
		require.NoError(h.T, h.Hydrate(models.ShardID(id, shard)))
	}
	return id
}

// The sums of a campaign of several shards are those of its shards, and its units are where it says.
func TestCompare_SumsOfShards(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := spread(h, 40, 2)
	h.Claim(models.ShardID(id, 1), syncertest.Asks("u", 4)...)
	_, err := h.Scripts.Debit(t.Context(), &lua.Debit{Move: "m", Shard: models.ShardID(id, 2), Epoch: 1, To: 1, Units: 3})
	require.NoError(t, err)
	h.Sync()
	require.Empty(t, h.Compare(id).Differences, "with units on their way")
	for column, says := range map[string]string{
		"claimed":         "campaigns.claimed is 1 more than that of all shards",
		"synced_seq":      "campaigns.synced_seq is 1 more than that of all shards",
		"released_claims": "campaigns.released_claims is 1 more than that of all shards",
		"total":           "is -1 units more than the total",
	} {
		h.Exec("UPDATE lots SET "+column+" = "+column+" + 1 WHERE id = ?", id)
		require.Contains(t, fmt.Sprint(h.Compare(id).Differences), says)
		h.Exec("UPDATE lots SET "+column+" = "+column+" - 1 WHERE id = ?", id)
	}
}

// Units of a shard that are on their way to MySQL are no difference. Units that Redis has and MySQL does not are one, and the shard is
// loaded again.
func TestCompare_UnitsOfAShard(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := spread(h, 40, 2)
	first := models.ShardID(id, 1)
	_, err := h.Scripts.Debit(t.Context(), &lua.Debit{Move: "m", Shard: first, Epoch: 1, To: 2, Units: 3})
	require.NoError(t, err)
	require.Empty(t, h.Compare(id).Differences)
	h.Sync()
	require.Empty(t, h.Compare(id).Differences)
	require.NoError(t, h.Redis.HSet(t.Context(), h.Keys(first).State, "total", 20).Err())
	require.Contains(t, fmt.Sprint(h.Compare(id).Differences), "shard 1: redis has a total of 20, mysql of 17")
	h.Repair(id, reconcile.RepairHow{})
	require.Empty(t, h.Compare(id).Differences)
}

// The figures of a campaign are of the moments at which its shards were compared. Claims that reach MySQL while the comparison is under way
// do not make what it says of Redis and of MySQL differ by more than the backlog and the drift that it says.
func TestCompare_FiguresOfAShardedCampaignAgree(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := spread(h, 100_000, 8)
	var stop atomic.Bool
	var claims sync.WaitGroup
	defer claims.Wait()
	defer stop.Store(true)
	claims.Go(func() {
		for !stop.Load() {
			for shard := 1; shard <= 8; shard++ {
				h.Claim(models.ShardID(id, shard), syncertest.Asks("u", 2)...)
				h.Sync()
			}
		}
	})
	for settled := 0; settled < 40; {
		found, err := h.Reconciler().Compare(t.Context(), id, reconcile.DepthBooks)
		require.NoError(t, err)
		if *found.Backlog != 0 || *found.Drift != 0 {
			continue
		}
		settled++
		require.Equal(t, found.Redis.Remaining, found.MySQL.Remaining)
	}
	require.Less(t, h.Campaign(id).Remaining, int64(100_000))
}

func refill(h *syncertest.Stack) (refilled int) {
	h.T.Helper()
	refilled, err := h.Maintainer().Attend(h.T.Context(), true)
	require.NoError(h.T, err)
	return refilled
}
