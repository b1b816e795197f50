package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"dibs/internal/crowd"
	"dibs/lua"
	"dibs/models"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const packetShards = 4

// deal makes a sharded packet campaign for users.
func (r *rain) deal(users shopper) *sale {
	r.t.Helper()
	id := r.open(packetShards)
	return &sale{t: r.t, s: &system{servers: r.servers, apis: []*process{r.api}}, id: id, shards: packetShards, quantity: 1, users: users}
}

func (sl *sale) tally() crowd.Tally {
	told := crowd.Tally{Claims: map[string]models.Claim{}}
	for _, c := range sl.claims {
		told.Claims[c.ID] = c
	}
	return told
}

// primaries counts the servers of these shards' partitions.
func (r *rain) primaries(shards []models.ShardFigures) int {
	r.t.Helper()
	cluster, isCluster := r.rdb.(*redis.ClusterClient)
	if !isCluster {
		return 1
	}
	different := map[string]bool{}
	for _, f := range shards {
		node, err := cluster.MasterForKey(r.t.Context(), lua.StreamKey(f.Partition))
		require.NoError(r.t, err)
		different[node.Options().Addr] = true
	}
	return len(different)
}

// Each shard's users must get the packets dealt to it, each once, including
// packets added under load. No user may get sold_out while the shard has a
// free packet. All amounts must be credited, and all data agree. On a cluster
// the shards are on all primaries.
func TestPacketsOfShardsAreTakenOnceToTheCent(t *testing.T) {
	t.Parallel()
	onEachRedis(t, func(t *testing.T, w setup) {
		w.partitions = packetShards
		r := newRain(t, w)
		sl := r.deal(nil)
		r.add(sl.id, map[string]any{"count": 500, "amount": 70_013, "split": "double_mean"})
		isAdded := false
		sl.answered = func(int, string) { // under load; answers are recorded under the lock
			if len(sl.claims) == 50 && !isAdded {
				isAdded = true
				r.add(sl.id, map[string]any{"count": 100, "amount": 9_987, "split": "even"})
			}
		}
		for shard := 1; shard <= packetShards; shard++ {
			sl.users = func(n, shards int) string { return onShard(n, shards, shard) }
			sl.noes = nil
			sl.run(8)
			require.Len(t, sl.claims, 150*shard)
			for _, n := range sl.noes {
				for i := range sl.claims {
					require.False(t, sl.claims[i].ClaimedAt.After(n.at), "sold out was told at %s, packet %s went later", n.at, sl.claims[i].PacketID)
				}
			}
		}
		require.Equal(t, max(w.masters, 1), r.primaries(sl.spread().Shards))
		r.shut(sl.id)
		r.requireSettled(sl.id, 600, 80_000, sl.tally())
		require.Zero(t, sl.moves(), "packets stay where they were dealt to")
		require.Equal(t, exitOK, runDibs(t, r.settings, "reconcile").code)
	})
}

// A wave opens on time, and before it each shard must reply not_released for
// its packets. The consumer, the syncer and finance die while the campaign is
// closed. The rest of the shards must return to the sender once.
func TestPacketsOfShardsAreReturnedOnce(t *testing.T) {
	t.Parallel()
	r := newRain(t, setup{partitions: packetShards})
	sl := r.deal(evenly)
	dice := rand.New(rand.NewPCG(1, 2))
	ask := func(n int) reply {
		return sl.claim(sl.users(n, packetShards), 1, fmt.Sprint("k", n))
	}
	require.Equal(t, "sold_out", ask(1_000).code(), "no packets yet")
	opens := time.Now().Add(2 * time.Second)
	r.add(sl.id, map[string]any{"count": 300, "amount": 30_000, "split": "random_cut", "release_at": opens})
	r.add(sl.id, map[string]any{"count": 10, "amount": 1_000, "split": "even"})
	r.add(sl.id, map[string]any{"count": 50, "amount": 5_000, "split": "even", "release_at": time.Now().Add(time.Hour)})
	taken := map[string]models.Claim{}
	take := func(n int) (code string) {
		got := ask(n)
		if got.status == http.StatusCreated {
			c := got.claim(t)
			taken[c.ID] = c
		}
		return got.code()
	}
	for n := range 12 {
		user := sl.users
		sl.users = func(n, shards int) string { return onShard(n, shards, 1+n%shards) }
		code := take(n)
		sl.users = user
		if n < 8 {
			require.Empty(t, code, "each of the four shards has two of the ten, or three")
		}
	}
	sl.users = func(n, shards int) string { return onShard(n, shards, 1) }
	if code := take(50); time.Now().Before(opens) {
		require.Equal(t, "not_released", code)
	}
	sl.users = evenly
	eventually(t, drainWithin, "the wave did not open", func() bool { return take(11) == "" })
	require.False(t, time.Now().Before(opens.Truncate(time.Millisecond)), "a packet was given away before its time")
	for n := range 80 {
		require.Empty(t, take(12+n))
	}
	r.shut(sl.id)
	for _, p := range []*process{r.consumer, r.syncer, r.service} {
		p.kill9()
		p.restart()
	}
	require.Equal(t, "closed", ask(2_000+dice.IntN(9)).code())
	r.requireSettled(sl.id, 360, 36_000, crowd.Tally{Claims: taken})
	require.Equal(t, int64(360), r.number("SELECT SUM(total) FROM lots WHERE campaign_id = ? AND shard > 0", sl.id))
}
