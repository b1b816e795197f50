package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/models"
)

const fourShards = 4

// noonZone is a time zone in which it is about noon, so that no day ends while a test runs.
func noonZone(t *testing.T) *time.Location {
	t.Helper()
	name := fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12)
	if name == "Etc/GMT+0" {
		name = "UTC"
	}
	zone, err := models.LoadZone(name)
	require.NoError(t, err)
	return zone
}

// TestShardsKeepTheBooks: what is told and counted of a campaign is told and counted of one with four shards.
func TestShardsKeepTheBooks(t *testing.T) {
	t.Parallel()
	s := newSystem(t, wishes{partitions: fourShards, settings: map[string]string{"DIBS_IDLE_EVICT": "10m"}})
	for name, test := range map[string]func(t *testing.T, s *system){
		"batches cross shards": batchesCrossShards, "a limit a day": aLimitADay, "claims on their way are found": unsyncedClaimsAreFound,
		"a damaged shard is repaired while others go on": aDamagedShardIsRepaired,
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

func aLimitADay(t *testing.T, s *system) {
	t.Helper()
	sl := &sale{t: t, s: s, id: orID(t, ""), total: 100, shards: fourShards}
	got := call(t, http.MethodPost, s.apis[0].url+"/v1/campaigns", "", map[string]any{
		"id": sl.id, "kind": "coupon", "total": 100, "shards": fourShards, "per_user_per_day": 2, "time_zone": noonZone(t).String(),
	})
	require.Equal(t, http.StatusCreated, got.status, got.body)
	for n := range 8 {
		user := evenly(n, fourShards)
		sl.took(user, 2)
		require.Equal(t, "user_day_limit", sl.claim(user, 1, "").code())
	}
	sl.requireBooks(16)
}

func unsyncedClaimsAreFound(t *testing.T, s *system) {
	t.Helper()
	sl := s.sell(t, 40, fourShards, 1, evenly)
	for shard := 1; shard <= fourShards; shard++ {
		sl.took(onShard(10+shard, fourShards, shard), 1) // loads wait for MySQL
	}
	sl.requireBooks(fourShards)
	s.consumers[0].kill9()
	var claims []models.Claim
	for shard := 1; shard <= fourShards; shard++ {
		claims = append(claims, sl.took(onShard(shard, fourShards, shard), 1))
		requireRetryable(t, lookedUp(t, s.apis[0].url, claims[shard-1].ID), "unavailable")
	}
	stock, err := stockOf(t.Context(), s.apis[0].url, sl.id)
	require.NoError(t, err)
	require.Equal(t, []int64{8, 4, 32}, []int64{stock.Claimed, stock.Backlog, stock.Remaining})
	s.consumers[0].restart()
	for _, claim := range claims {
		eventually(t, upTimeout, "the claim is not found", func() bool { return lookedUp(t, s.apis[0].url, claim.ID).status == http.StatusOK })
		list := call(t, http.MethodGet, s.apis[0].url+"/v1/users/"+claim.UserID+"/claims", "", nil)
		require.Contains(t, list.body, claim.ID)
	}
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
	sl.took(onShard(9, fourShards, 1), 2) // MySQL has all of it: it is loaded again by itself
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

// TestIdleShardsLeaveRedis: each shard leaves Redis by itself, and comes back with what its users hold and were answered. Units that it had
// free are found by the others.
func TestIdleShardsLeaveRedis(t *testing.T) {
	t.Parallel()
	s := newSystem(t, wishes{apis: 2, partitions: fourShards, settings: map[string]string{"DIBS_IDLE_EVICT": "200ms"}})
	sl := &sale{t: t, s: s, id: orID(t, ""), total: 80, shards: fourShards}
	got := call(t, http.MethodPost, s.apis[0].url+"/v1/campaigns", "", map[string]any{
		"id": sl.id, "kind": "coupon", "total": 80, "shards": fourShards, "per_user": 70,
	})
	require.Equal(t, http.StatusCreated, got.status, got.body)
	gone := func() {
		t.Helper()
		eventually(t, upTimeout, "a shard does not leave Redis", func() bool {
			for shard := 1; shard <= fourShards; shard++ {
				keys, err := s.keysIn(t.Context(), models.ShardID(sl.id, shard))
				if err != nil || len(keys) != 0 {
					return false
				}
			}
			return true
		})
	}
	users := make([]string, fourShards)
	first := make([]reply, fourShards)
	for i := range users {
		users[i] = onShard(i, fourShards, i+1)
		first[i] = sl.claim(users[i], 1, "k")
		require.Equal(t, http.StatusCreated, first[i].status, first[i].body)
	}
	gone()
	sl.requireBooks(4)
	for i, user := range users {
		require.Equal(t, first[i].body, sl.claim(user, 1, "k").body, "the same answer as before")
	}
	gone()
	require.Equal(t, "user_limit", sl.claim(users[0], 70, "").code())
	gone()
	sl.took(users[2], 69)
	gone()
	sl.took(onShard(100, fourShards, 2), 7)
	sl.refused("sold_out", onShard(101, fourShards, 4), 1)
	sl.requireBooks(80)
	require.Equal(t, exitOK, runDibs(t, s.settings, "reconcile").code)
}
