package reconcile_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/reconcile"
	"dibs/syncer/writer"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// synced is a campaign of 100 units, ten of them claimed and in MySQL.
func synced(h *syncertest.Stack) string {
	h.T.Helper()
	id := h.Create(100, nil)
	h.Claim(id, syncertest.Asks("u", 10)...)
	h.Sync()
	return id
}

// trim has the stream forget all that it held.
func trim(h *syncertest.Stack) {
	h.T.Helper()
	require.NoError(h.T, h.Redis.XTrimMaxLen(h.T.Context(), lua.StreamKey(0), 0).Err())
}

// plant is one thing that someone did behind Dibs' back, and what must become of it.
type plant struct {
	name  string
	spoil func(h *syncertest.Stack, id string)
	says  string   // in the differences
	steps []string // of the repair
	taken int64    // after it
}

var plants = []plant{
	{name: "nothing", spoil: func(*syncertest.Stack, string) {}, taken: 10},
	{
		name: "a row is deleted, its event is in the stream", says: "9 rows of claims",
		spoil: func(h *syncertest.Stack, id string) {
			h.Exec("DELETE FROM claims WHERE campaign_id = ? AND seq = 4", id)
		},
		steps: []string{reconcile.RepairClaims}, taken: 10,
	},
	{
		name: "a row is deleted and the counters are made to fit, its event is in the stream", says: "nothing is on its way",
		spoil: func(h *syncertest.Stack, id string) {
			h.Exec("DELETE FROM claims WHERE campaign_id = ? AND seq = 10", id)
			h.Exec("UPDATE lots SET claimed = 9, synced_seq = 9 WHERE id = ?", id)
		},
		steps: []string{reconcile.RepairClaims}, taken: 10,
	},
	{
		name: "a row is deleted, its event is trimmed", says: "9 rows of claims",
		spoil: func(h *syncertest.Stack, id string) {
			trim(h)
			h.Exec("DELETE FROM claims WHERE campaign_id = ? AND seq = 4", id)
		},
		steps: []string{reconcile.RepairClaims}, taken: 10,
	},
	{
		name: "the last row is deleted, its event is trimmed", says: "9 rows of claims",
		spoil: func(h *syncertest.Stack, id string) {
			trim(h)
			h.Exec("DELETE FROM claims WHERE campaign_id = ? AND seq = 10", id)
		},
		steps: []string{reconcile.RepairClaims}, taken: 10,
	},
	{
		name: "campaigns.claimed", says: "campaigns.claimed is 12",
		spoil: func(h *syncertest.Stack, id string) { h.Exec("UPDATE lots SET claimed = 12 WHERE id = ?", id) },
		steps: []string{reconcile.RepairCampaigns}, taken: 10,
	},
	{
		name: "campaigns.redis_total", says: "campaigns.remaining is 110",
		spoil: func(h *syncertest.Stack, id string) { h.Exec("UPDATE lots SET redis_total = 120 WHERE id = ?", id) },
		steps: []string{reconcile.RepairCampaigns}, taken: 10,
	},
	{
		name: "campaigns.synced_seq is raised", says: "campaigns.synced_seq is 11",
		spoil: func(h *syncertest.Stack, id string) { h.Exec("UPDATE lots SET synced_seq = 11 WHERE id = ?", id) },
		steps: []string{reconcile.RepairCampaigns, reconcile.RepairRedis}, taken: 10, // else Redis might have been rolled back
	},
	{
		name: "campaigns.synced_seq is lowered", says: "campaigns.synced_seq is 7",
		spoil: func(h *syncertest.Stack, id string) { h.Exec("UPDATE lots SET synced_seq = 7 WHERE id = ?", id) },
		steps: []string{reconcile.RepairCampaigns}, taken: 10,
	},
	{
		name: "taken in Redis is lowered", says: "redis has 5 units taken",
		spoil: func(h *syncertest.Stack, id string) { hset(h, h.Keys(id).State, "taken", "5") },
		steps: []string{reconcile.RepairRedis}, taken: 10,
	},
	{
		name: "taken in Redis is raised", says: "redis has 50 units taken",
		spoil: func(h *syncertest.Stack, id string) { hset(h, h.Keys(id).State, "taken", "50") },
		steps: []string{reconcile.RepairRedis}, taken: 10,
	},
	{
		name: "seq in Redis is raised", says: "nothing is on its way",
		spoil: func(h *syncertest.Stack, id string) { hset(h, h.Keys(id).State, "seq", "1000") },
		steps: []string{reconcile.RepairRedis}, taken: 10,
	},
	{
		name: "total in Redis", says: "redis has a total of 1000",
		spoil: func(h *syncertest.Stack, id string) { hset(h, h.Keys(id).State, "total", "1000") },
		steps: []string{reconcile.RepairRedis}, taken: 10,
	},
	{
		name: "a change is lost in MySQL", says: "redis works by definition",
		spoil: func(h *syncertest.Stack, id string) {
			c, err := syncertest.NewCampaigns(h.T, h.DB, h.Scripts).Change(h.T.Context(), id, models.Change{PerUser: new(int64(5))})
			require.NoError(h.T, err)
			h.Exec("UPDATE definitions SET per_user = 0, version = ? WHERE campaign_id = ?", c.Version-1, id)
			h.Exec("UPDATE lots SET applied_version = ? WHERE id = ?", c.Version-1, id)
		},
		steps: []string{reconcile.RepairRedis}, taken: 10,
	},
	{
		name: "a user's count", says: "user u-3 holds 0 units in redis",
		spoil: func(h *syncertest.Stack, id string) { hset(h, h.Keys(id).Users, "u-3", "0:0;0:0") },
		steps: []string{reconcile.RepairRedis}, taken: 10,
	},
	{
		name: "a user's count of the day", says: "user u-3 holds 7 units of day",
		spoil: func(h *syncertest.Stack, id string) {
			record, err := h.Redis.HGet(h.T.Context(), h.Keys(id).Users, "u-3").Result()
			require.NoError(h.T, err)
			hset(h, h.Keys(id).Users, "u-3", strings.TrimSuffix(record, ":1")+":7")
		},
		steps: []string{reconcile.RepairRedis}, taken: 10,
	},
	{
		name: "a user's record is gone", says: "user u-3 has no record in redis",
		spoil: func(h *syncertest.Stack, id string) {
			require.NoError(h.T, h.Redis.HDel(h.T.Context(), h.Keys(id).Users, "u-3").Err())
		},
		steps: []string{reconcile.RepairRedis}, taken: 10,
	},
	{
		name: "an idempotency record is gone", says: "redis holds 9 idempotency records of 10 claims",
		spoil: func(h *syncertest.Stack, id string) {
			fields, err := h.Redis.HKeys(h.T.Context(), h.Keys(id).Keys).Result()
			require.NoError(h.T, err)
			require.NoError(h.T, h.Redis.HDel(h.T.Context(), h.Keys(id).Keys, fields[0]).Err())
		},
		steps: []string{reconcile.RepairRedis}, taken: 10,
	},
	{
		name: "the campaign is gone from Redis", says: "redis does not hold load 1",
		spoil: func(h *syncertest.Stack, id string) {
			k := h.Keys(id)
			require.NoError(h.T, h.Redis.Del(h.T.Context(), k.State, k.Users, k.Keys).Err())
		},
		steps: []string{reconcile.RepairRedis}, taken: 10,
	},
}

func hset(h *syncertest.Stack, key, field, value string) {
	h.T.Helper()
	require.NoError(h.T, h.Redis.HSet(h.T.Context(), key, field, value).Err())
}

func TestReconciler_EachPlantedDriftIsFoundAndRepairedByTheEvidence(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	for _, p := range plants {
		requireFoundAndRepaired(h, synced(h), p)
	}
}

// requireFoundAndRepaired spoils a campaign of 100 units of which ten are claimed and synced.
func requireFoundAndRepaired(h *syncertest.Stack, id string, p plant) {
	t := h.T
	t.Helper()
	require.Empty(t, h.Compare(id).Differences, "%s: before", p.name)
	p.spoil(h, id)

	found := h.Compare(id)
	require.Equal(t, p.says == "", found.Agrees(), "%s: %q", p.name, found.Differences)
	require.Contains(t, strings.Join(found.Differences, "\n"), p.says, p.name)

	done, err := h.Reconciler().Repair(t.Context(), id, reconcile.RepairHow{})
	require.NoError(t, err, p.name)
	require.Equal(t, found.Differences, done.Found.Differences, p.name)
	require.Empty(t, done.Left.Differences, p.name)
	require.Equal(t, p.steps, whats(done.Steps), "%s: %+v", p.name, done.Steps)
	var recorded int
	require.NoError(t, h.DB.Raw("SELECT COUNT(*) FROM repairs WHERE campaign_id = ?", id).Scan(&recorded).Error)
	require.Equal(t, len(p.steps), recorded, p.name)

	state, err := h.Scripts.State(t.Context(), id)
	require.NoError(t, err)
	c := h.Campaign(id)
	require.Equal(t, []int64{p.taken, p.taken, 100 - p.taken, 100, 10, 10, 0},
		[]int64{state.Taken, c.Claimed, c.Remaining, state.Total, state.Seq, c.SyncedSeq, c.LostClaims}, p.name)
	h.Claim(id, syncertest.Ask("later", ""))
	h.Sync()
	require.Empty(t, h.Compare(id).Differences, "%s: and it goes on", p.name)
}

func whats(steps []models.Repair) (all []string) {
	for i := range steps {
		all = append(all, steps[i].What)
	}
	return all
}

func TestReconciler_ALagIsNeverADifference(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := synced(h)
	h.Claim(id, syncertest.Asks("late", 7)...) // the consumer is away
	r := h.Reconciler()
	for range 3 {
		for _, depth := range []reconcile.Depth{reconcile.DepthBooks, reconcile.DepthRows, reconcile.DepthUsers} {
			found, err := r.Compare(t.Context(), id, depth)
			require.NoError(t, err)
			require.Empty(t, found.Differences)
			require.Equal(t, int64(7), *found.Backlog)
			require.Nil(t, found.Drift)
		}
	}
	done, err := r.Repair(t.Context(), id, reconcile.RepairHow{})
	require.NoError(t, err)
	require.Empty(t, done.Steps)
	require.Equal(t, int64(1), h.Campaign(id).Epoch, "nothing was rebuilt")
}

func TestReconciler_FindsADeletedRowBehindALag(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := synced(h)
	h.Claim(id, syncertest.Asks("late", 7)...)
	h.Exec("DELETE FROM claims WHERE campaign_id = ? AND seq = 4", id)
	done, err := h.Reconciler().Repair(t.Context(), id, reconcile.RepairHow{})
	require.NoError(t, err)
	require.Equal(t, []string{reconcile.RepairClaims}, whats(done.Steps), "and none of those on their way")
	h.Sync()
	found := h.Compare(id)
	require.Empty(t, found.Differences)
	require.Equal(t, int64(17), found.Rows.Claims)
}

func TestReconciler_BusyCampaignsAreNotCalledDifferent(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(1_000_000, nil)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				h.Claim(id, syncertest.Asks("b"+strconv.Itoa(i), 20)...)
				h.Sync()
			}
		}
	}()
	r := h.Reconciler()
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); {
		found, err := r.Compare(t.Context(), id, reconcile.DepthUsers)
		require.NoError(t, err)
		require.Empty(t, found.Differences)
	}
	close(stop)
	<-stopped
	found := h.Compare(id)
	require.Empty(t, found.Differences)
	require.Positive(t, found.Rows.Claims)
	require.Zero(t, *found.Drift)
}

func TestReconciler_ARoundRecordsWhatChangedAndNoMoreThanItKeeps(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := synced(h)
	reg := prometheus.NewRegistry()
	r := reconcile.New(h.DB, h.Scripts, h.Hydrator(), syncertest.Quiet(), reg)
	r.CountAlways()
	r.KeepRecords(3)
	round := func() (differ int, rows []models.Reconciliation) {
		differ, err := r.Reconcile(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.DB.Where("campaign_id = ?", id).Order("at, id").Find(&rows).Error)
		return differ, rows
	}
	for range 3 {
		differ, rows := round()
		require.Zero(t, differ)
		require.Len(t, rows, 1, "nothing new is not written again")
		require.Equal(t, []int64{90, 90, 0, 0}, []int64{*rows[0].RedisRemaining, rows[0].MySQLRemaining, *rows[0].Backlog, *rows[0].Drift})
	}

	hset(h, h.Keys(id).State, "taken", "5")
	differ, rows := round()
	require.Equal(t, 1, differ)
	require.Len(t, rows, 2)
	require.Equal(t, int64(5), *rows[1].Drift)
	require.Equal(t, 5.0, figure(t, reg, "dibs_drift_units"))
	require.Equal(t, 1.0, figure(t, reg, "dibs_drift_campaigns"))

	hset(h, h.Keys(id).State, "taken", "10")
	h.Claim(id, syncertest.Asks("late", 2)...)
	differ, rows = round()
	require.Zero(t, differ)
	last := rows[len(rows)-1]
	require.Equal(t, []any{int64(2), (*int64)(nil)}, []any{*last.Backlog, last.Drift}, "a lag is a backlog, not a drift")
	require.Equal(t, 0.0, figure(t, reg, "dibs_drift_units"))
	h.Sync()

	for i := range 20 {
		h.Claim(id, syncertest.Ask("more-"+strconv.Itoa(i), ""))
		h.Sync()
		_, rows = round()
		require.LessOrEqual(t, len(rows), 6)
	}
	require.Equal(t, int64(68), rows[len(rows)-1].MySQLRemaining, "the newest are kept")
}

// A drift is recorded until the rows have been counted again, and its end as soon as they were.
func TestReconciler_TheEndOfADriftIsRecordedAtOnce(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := synced(h)
	r := h.Reconciler()
	drift := func() (last int64) {
		_, err := r.Reconcile(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.DB.Raw("SELECT drift FROM reconciliations WHERE campaign_id = ? ORDER BY at DESC, id DESC LIMIT 1", id).Scan(&last).Error)
		return last
	}
	r.CountAlways()
	hset(h, h.Keys(id).State, "taken", "5")
	require.Equal(t, int64(5), drift())
	hset(h, h.Keys(id).State, "taken", "10")
	r.CountNoMore()
	require.Equal(t, int64(5), drift(), "the rows may differ still")
	r.CountAlways()
	require.Zero(t, drift())
}

func TestReconciler_ARoundFindsADeletedRow(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := synced(h)
	r := h.Reconciler()
	r.CountAlways()
	h.Exec("DELETE FROM claims WHERE campaign_id = ? AND seq = 4", id)
	differ, err := r.Reconcile(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, differ)
	_, err = r.Repair(t.Context(), id, reconcile.RepairHow{})
	require.NoError(t, err)
	differ, err = r.Reconcile(t.Context())
	require.NoError(t, err)
	require.Zero(t, differ)
}

func figure(t *testing.T, reg prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	require.Fail(t, "no figure "+name)
	return 0
}

func TestReconciler_RepairsOnSQLite(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	h.DB = syncertest.OpenStore(t, sqlstore.Config{Path: filepath.Join(t.TempDir(), "dibs.db")})
	h.Writer = syncertest.StartWriter(t, writer.Config{DB: h.DB, FlushInterval: time.Millisecond})
	id := synced(h)
	h.Exec("DELETE FROM claims WHERE campaign_id = ? AND seq = 4", id)
	h.Exec("UPDATE lots SET claimed = 12 WHERE id = ?", id)
	hset(h, h.Keys(id).State, "taken", "5")
	done, err := h.Reconciler().Repair(t.Context(), id, reconcile.RepairHow{})
	require.NoError(t, err)
	require.Equal(t, []string{reconcile.RepairClaims, reconcile.RepairCampaigns, reconcile.RepairRedis}, whats(done.Steps))
	require.Empty(t, done.Left.Differences)
	_, err = h.Reconciler().Reconcile(t.Context())
	require.NoError(t, err)
}
