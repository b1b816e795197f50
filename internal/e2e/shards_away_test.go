package e2e

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

// spread reads a campaign's shards, like an operator.
func (sl *sale) spread() models.ShardsOf {
	sl.t.Helper()
	var of models.ShardsOf
	got := call(sl.t, http.MethodGet, sl.s.apis[0].url+"/v1/campaigns/"+sl.id+"/shards", "", nil)
	require.Equal(sl.t, http.StatusOK, got.status, got.body)
	require.NoError(sl.t, json.Unmarshal([]byte(got.body), &of), got.body)
	return of
}

// on claims once, from one API process, for a new user of a shard.
func (sl *sale) on(api, shard int, quantity int64) reply {
	sl.t.Helper()
	user := onShard(int(sl.next.Add(1)), sl.shards, shard)
	return callOn(sl.t, keepingAlive, http.MethodPost, sl.s.apis[api].url+"/v1/campaigns/"+sl.id+"/claims", "",
		map[string]any{"user_id": user, "quantity": quantity})
}

// primaries maps shards, from 1, to their servers, and counts the servers.
func (sl *sale) primaries() (by map[int]*testenv.RedisServer, count int) {
	sl.t.Helper()
	by, different := map[int]*testenv.RedisServer{}, map[*testenv.RedisServer]bool{}
	for _, f := range sl.spread().Shards {
		by[f.Shard] = sl.s.cluster.MasterOf(lua.StreamKey(f.Partition))
		different[by[f.Shard]] = true
	}
	return by, len(different)
}

// A campaign's shards are on all three primaries of a cluster. One dies under
// load: its users must get 503, others claim on, no user may get sold_out.
// After the promotion all units must be sold.
func TestAShardWhosePrimaryIsAway(t *testing.T) {
	t.Parallel()
	const shards, total = 4, 1200
	s := newSystem(t, setup{
		masters: 3, replicated: true, partitions: 12, apis: 2, redisConf: []string{"repl-diskless-sync-delay 0"},
		settings: map[string]string{"DIBS_DURABILITY": "mysql"},
	})
	sl := s.sell(t, total, shards, 2, evenly)
	for shard := 1; shard <= shards; shard++ {
		sl.claims = append(sl.claims, sl.took(onShard(shard, shards, shard), 1))
	}
	primaries, count := sl.primaries()
	// on a busy machine one may be replaced in the meantime
	for till := time.Now().Add(time.Minute); count != 3 && time.Now().Before(till); {
		primaries, count = sl.primaries()
	}
	require.Equal(t, 3, count, "shards lie on all primaries")
	dead, stream := primaries[1], lua.StreamKey(sl.spread().Shards[0].Partition)
	var isAway atomic.Bool
	var yesElsewhere, noHere, yesHere atomic.Int64
	sl.answered = func(shard int, code string) {
		switch isHere := primaries[shard] == dead; {
		case !isAway.Load():
		case isHere && code == "":
			yesHere.Add(1)
		case isHere:
			noHere.Add(1)
		case code == "":
			yesElsewhere.Add(1)
		}
	}
	over := make(chan struct{})
	go func() { defer close(over); sl.run(8) }()
	require.Eventually(t, func() bool { return sl.next.Load() > 40 }, upTimeout, time.Millisecond)
	dead.Kill()
	gone := time.Now()
	isAway.Store(true)
	promoted := s.cluster.AwaitPromotion(dead, stream)
	isAway.Store(false)
	dead.Start()
	<-over
	sl.requireExact()
	for _, n := range sl.noes {
		require.True(t, n.at.Before(gone) || n.at.After(promoted), "no one is told sold out while units may lie in a shard that is away")
	}
	t.Logf("away for %s: its users got %d 503s and %d claims, others %d claims", promoted.Sub(gone).Round(time.Millisecond), noHere.Load(), yesHere.Load(),
		yesElsewhere.Load())
	require.Positive(t, noHere.Load())
	require.Positive(t, yesElsewhere.Load())
	require.Equal(t, exitOK, runDibs(t, s.settings, "reconcile").code)
}

// Without MySQL, units stay in their shards. Each shard must
// sell its own; an empty one must reply 503 and never sold_out,
// and be refilled once MySQL is reachable.
func TestShardsWithoutMySQL(t *testing.T) {
	t.Parallel()
	const shards, total = 4, 80
	s := newSystem(t, setup{partitions: shards, ownSQL: true})
	sl := s.sell(t, total, shards, 1, evenly)
	for shard := 1; shard <= shards; shard++ {
		require.Equal(t, http.StatusCreated, sl.on(0, shard, 1).status)
	}
	sl.requireBooks(shards)
	s.sql.Kill()
	sold := int64(shards)
	for shard := 1; shard < shards; shard++ {
		for range total/shards - 1 {
			got := sl.on(0, shard, 1)
			require.Equal(t, http.StatusCreated, got.status, got.body)
			sold++
		}
	}
	require.Equal(t, "unavailable", sl.on(0, 1, 1).code())
	s.sql.Start()
	for ; sold < total; sold++ {
		sl.took(onShard(int(sl.next.Add(1)), shards, 1), 1)
	}
	sl.refused("sold_out", onShard(int(sl.next.Add(1)), shards, 2), 1)
	sl.requireBooks(total)
}
