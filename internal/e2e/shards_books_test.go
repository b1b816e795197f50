package e2e

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/models"
)

const fourShards = 4

// Events and counters of a campaign with four shards must be
// those of an unsharded one.
func TestShardsKeepTheBooks(t *testing.T) {
	t.Parallel()
	s := newSystem(t, setup{partitions: fourShards, settings: map[string]string{"DIBS_IDLE_EVICT": "10m"}})
	for name, test := range map[string]func(t *testing.T, s *system){
		"batches cross shards": batchesCrossShards, "a damaged shard is repaired while others go on": aDamagedShardIsRepaired,
	} {
		t.Run(name, func(t *testing.T) { s := *s; s.t = t; test(t, &s) })
	}
}

func batchesCrossShards(t *testing.T, s *system) {
	t.Helper()
	sl := s.sell(t, 40, fourShards, 1, evenly)
	batch := make([]map[string]any, 60)
	for n := range batch {
		user := evenly(n, fourShards)
		batch[n] = map[string]any{"campaign_id": sl.id, "user_id": user, "idempotency_key": user}
	}
	ids := map[string]bool{}
	send := func() (claimed, soldOut, unavailable int) {
		got := call(t, http.MethodPost, s.apis[0].url+"/v1/claims:batch", "", map[string]any{"claims": batch})
		require.Equal(t, http.StatusOK, got.status, got.body)
		var answer struct {
			Results []struct {
				Claim   *models.Claim
				Problem *struct{ Code string }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(got.body), &answer))
		for _, r := range answer.Results {
			switch {
			case r.Claim != nil:
				ids[r.Claim.ID] = true
				claimed++
			case r.Problem.Code == "sold_out":
				soldOut++
			default:
				require.Equal(t, "unavailable", r.Problem.Code)
				unavailable++
			}
		}
		return claimed, soldOut, unavailable
	}
	require.Eventually(t, func() bool {
		claimed, soldOut, unavailable := send()
		return claimed == 40 && soldOut == 20 && unavailable == 0
	}, upTimeout, pollEvery)
	claimed, _, _ := send()
	require.Equal(t, []int{40, 40}, []int{claimed, len(ids)}, "a batch that is sent again gets the same claims")
	sl.requireBooks(40)
}

func aDamagedShardIsRepaired(t *testing.T, s *system) {
	t.Helper()
	sl := s.sell(t, 400, fourShards, 1, evenly)
	for shard := 1; shard <= fourShards; shard++ {
		sl.took(onShard(shard, fourShards, shard), 2)
	}
	sl.requireBooks(8)
	sold := int64(8)
	others := func() {
		for shard := 2; shard <= fourShards; shard++ {
			got := sl.on(0, shard, 1)
			require.Equal(t, http.StatusCreated, got.status, got.body)
			sold++
		}
	}
	state := s.keysOf(models.ShardID(sl.id, 1)).State
	require.NoError(t, s.rdb.HSet(t.Context(), state, "taken", "1").Err())
	others()
	got := runDibs(t, s.settings, "reconcile", "--campaign", sl.id)
	require.Equal(t, exitDrift, got.code, got.stdout+got.stderr)
	require.Contains(t, got.stdout, "shard 1: redis has 1 units taken, mysql 2 claimed")
	eventually(t, upTimeout, "the leader does not record the drift", func() bool {
		var drift, total int64
		err := s.db.QueryRowContext(t.Context(), "SELECT COALESCE(drift, 0), total FROM stock_watch WHERE campaign_id = ?", sl.id).Scan(&drift, &total)
		return err == nil && drift == 1 && total == sl.total
	})
	got = runDibs(t, s.settings, "reconcile", "--campaign", sl.id, "--repair")
	require.Equal(t, exitOK, got.code, got.stdout+got.stderr)
	others()
	require.NoError(t, s.rdb.HSet(t.Context(), state, "total", "many").Err())
	others()
	sl.took(onShard(9, fourShards, 1), 2) // MySQL has all of it: it is reloaded automatically
	sl.requireBooks(sold + 2)
	require.NoError(t, s.rdb.Del(t.Context(), state).Err())
	others()
	sl.took(onShard(10, fourShards, 1), 1)
	sl.requireBooks(sold + 3)
	eventually(t, upTimeout, "stock_watch does not show the stock", func() bool {
		var remaining, drift, backlog int64
		err := s.db.QueryRowContext(t.Context(), "SELECT remaining, drift, backlog FROM stock_watch WHERE campaign_id = ?", sl.id).Scan(&remaining, &drift, &backlog)
		return err == nil && remaining == sl.total-sold-3 && drift == 0 && backlog == 0
	})
	require.Equal(t, exitOK, runDibs(t, s.settings, "reconcile", "--campaign", sl.id).code)
}
