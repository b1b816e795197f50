package lua_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

const clusterSlots = 16384

// slot is the hash slot of a key as Redis Cluster computes it:
// CRC-16/XMODEM of the tag between the first braces.
func slot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if length := strings.IndexByte(key[open+1:], '}'); length > 0 {
			key = key[open+1 : open+1+length]
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % clusterSlots
}

func TestKeysAreTheOnesThatDocsName(t *testing.T) {
	t.Parallel()
	require.Equal(t, lua.CampaignKeys{
		State: "dibs:{p3}:c:spring", Users: "dibs:{p3}:c:spring:users", Keys: "dibs:{p3}:c:spring:keys", Stream: "dibs:{p3}:claims",
		Waves: "dibs:{p3}:c:spring:waves", Moves: "dibs:{p3}:c:spring:moves", Signals: "dibs:{p3}:signals",
	}, lua.KeysOf("spring", 3))
	require.Equal(t, "dibs:{p0}:claims", lua.StreamKey(0))
	require.Equal(t, "dibs:{p0}:claims:parked:finance", lua.ParkedKey(0, "finance"))
	require.Equal(t, "dibs:replays:finance", lua.ReplaysKey("finance"))
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
				require.Equal(t, slot(k.State), slot(key), key)
			}
		}
	}
}

// Existing lots are found by these numbers.
func TestPartitionOfNeverChanges(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		id         string
		partitions int
		want       int
	}{{"spring-sale", 1, 0}, {"spring-sale", 0, 0}, {"spring-sale", 16, 8}, {"a", 16, 12}, {"b", 16, 5}, {"b", 256, 165}} {
		require.Equal(t, row.want, lua.PartitionOf(row.id, row.partitions), "%s of %d", row.id, row.partitions)
	}
}

// How the tags {p0}… spread over the masters of a cluster with evenly
// split slots. most is the share of the fullest one. 16 on 3 are 4, 5
// and 7: the fullest master gets 44 %, not 33 %.
func TestTagsSpreadOverMasters(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ partitions, masters, most int }{{16, 3, 7}, {16, 2, 8}, {8, 3, 4}, {4, 3, 2}, {32, 3, 14}, {64, 3, 24}, {256, 3, 89}} {
		counts, slots := make([]int, row.masters), map[int]bool{}
		for p := range row.partitions {
			s := slot(lua.StreamKey(p))
			slots[s] = true
			counts[s*row.masters/clusterSlots]++
		}
		t.Logf("%d partitions on %d masters: %v", row.partitions, row.masters, counts)
		require.Len(t, slots, row.partitions, "each partition has a slot of its own")
		for _, n := range counts {
			require.LessOrEqual(t, n, row.most, "%d partitions on %d masters: %v", row.partitions, row.masters, counts)
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
				nodes[slot(key)*row.masters/clusterSlots] = true
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
		require.Equal(t, int64(slot(b.keys.State)), server)
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
