package lua_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

const clusterSlots = 16384

// Existing lots are found by these keys and partitions.
func TestKeysAreTheOnesThatDocsName(t *testing.T) {
	t.Parallel()
	require.Equal(t, lua.CampaignKeys{
		State: "dibs:{p3}:c:spring", Users: "dibs:{p3}:c:spring:users", Keys: "dibs:{p3}:c:spring:keys", Stream: "dibs:{p3}:claims",
		Waves: "dibs:{p3}:c:spring:waves", Moves: "dibs:{p3}:c:spring:moves", Signals: "dibs:{p3}:signals",
	}, lua.KeysOf("spring", 3))
	require.Equal(t, "dibs:{p0}:claims", lua.StreamKey(0))
	require.Equal(t, "dibs:{p0}:claims:parked:finance", lua.ParkedKey(0, "finance"))
	require.Equal(t, "dibs:replays:finance", lua.ReplaysKey("finance"))
	require.Equal(t, []int{0, 8, 12, 5, 165}, []int{
		lua.PartitionOf("spring-sale", 1), lua.PartitionOf("spring-sale", 16), lua.PartitionOf("a", 16), lua.PartitionOf("b", 16),
		lua.PartitionOf("b", 256),
	})
}

func TestKeysOfACampaignShareASlot(t *testing.T) {
	t.Parallel()
	for partition := range lua.PartitionsMax {
		for _, id := range []string{"a", "spring-sale.2026", strings.Repeat("Z", models.CampaignIDLength)} {
			k := lua.KeysOf(id, partition)
			for _, key := range []string{
				k.Users, k.Keys, k.Stream, k.Waves, lua.TrimmedKey(partition), lua.SignalsKey(partition), lua.ParkedKey(partition, "a}b{c"),
				lua.NoListKey(partition),
			} {
				require.Equal(t, lua.Slot(k.State), lua.Slot(key), key)
			}
		}
	}
}

func TestShardsLieOnAllPrimaries(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ partitions, masters, shards int }{
		{4, 3, 4}, {8, 2, 2}, {12, 3, 4}, {12, 3, 8}, {16, 3, 4}, {16, 4, 4}, {24, 6, 8}, {64, 8, 16},
	} {
		for i := range 20 * row.partitions {
			nodes, id := map[int]bool{}, fmt.Sprintf("campaign-%d", i)
			for shard := range row.shards {
				key := lua.StreamKey(lua.PartitionOf(models.ShardID(id, shard+1), row.partitions))
				nodes[lua.Slot(key)*row.masters/clusterSlots] = true
			}
			require.Len(t, nodes, min(row.masters, row.shards), "%s: %+v", id, row)
		}
	}
}

func TestClusterRunsEveryScript(t *testing.T) {
	t.Parallel()
	const partitions = 16
	addrs := testenv.RedisCluster(t, 3)
	rdb := connect(t, "redis://"+strings.Join(addrs, ","))
	require.IsType(t, &redis.ClusterClient{}, rdb)
	s, err := lua.New(rdb, lua.Options{Partitions: partitions})
	require.NoError(t, err)
	require.NoError(t, s.Preload(t.Context()))

	used, all := map[int]bool{}, []models.Campaign{}
	for i := 0; len(used) < partitions; i++ {
		b := &bundle{t: t, rdb: rdb, s: s, c: &models.Campaign{
			ID: fmt.Sprintf("c-%d", i), Kind: models.KindCoupon, Status: models.StatusOpen, Total: 3, PerUser: 2, TimeZone: "UTC", Version: 1, Epoch: 1,
		}}
		b.meta, err = s.MetaOf(b.c)
		require.NoError(t, err)
		b.keys = s.KeysOf(b.c.ID)
		all = append(all, *b.c)
		used[b.meta.Partition] = true
		_, err := s.Load(t.Context(), b.c)
		require.NoError(t, err)
		require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeUserLimit, models.OutcomeReplayed, models.OutcomeClaimed, models.OutcomeSoldOut},
			b.outcomes(want("u", 2, "k"), want("u", 1, ""), want("u", 2, "k"), want("v", 1, ""), want("w", 1, "")))
		require.Equal(t, int64(9), b.adjust(func(c *models.Campaign) { c.Total = 9 }).Total)
		b.requireBooks()
		server, err := rdb.ClusterKeySlot(t.Context(), b.keys.State).Result()
		require.NoError(t, err)
		require.Equal(t, int64(lua.Slot(b.keys.State)), server)
	}
	for _, addr := range addrs {
		require.Positive(t, connect(t, "redis://"+addr).DBSize(t.Context()).Val(), "each master has its share")
		require.NoError(t, connect(t, "redis://"+addr).ScriptFlush(t.Context()).Err())
	}
	// in one pipeline, on nodes without the script
	evicted, errs := s.Evict(t.Context(), all, -time.Hour)
	require.NoError(t, errors.Join(errs...))
	require.NotContains(t, evicted, false)
}
