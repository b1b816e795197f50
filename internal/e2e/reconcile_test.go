package e2e

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"dibs/internal/crowd"
	"dibs/lua"
	"dibs/syncer/compare"

	"github.com/stretchr/testify/require"
)

const exitDrift = 3

// The command runs beside other roles, on a cluster.
func TestReconcileFindsAndRepairsAndThenAgrees(t *testing.T) {
	t.Parallel()
	s := newSystem(t, setup{masters: 3, partitions: 4})
	c := openCampaign(t, s.apis[0].url, campaign{Total: 1_000, PerUser: 1})
	tally := startRush(t, crowd.Plan{BaseURLs: s.urls(), CampaignID: c.ID, Users: 500, Connections: 20}).wait()
	s.checkBooks(c, tally, false)

	rows := func() (n int) {
		require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM reconciliations WHERE campaign_id = ? AND drift = 0", c.ID).Scan(&n))
		return n
	}
	before := rows()
	got := runDibs(t, s.settings, "reconcile")
	require.Equal(t, exitOK, got.code, got.stdout+got.stderr)
	require.Greater(t, rows(), before, "a row a comparison")
	require.Regexp(t, c.ID+` +1,000 +500 +500 +500 +0 +0 +agree`, got.stdout)

	require.NoError(t, s.rdb.HSet(t.Context(), s.keysOf(c.ID).State, "taken", "400").Err())
	got = runDibs(t, s.settings, "reconcile", "--campaign", c.ID)
	require.Equal(t, exitDrift, got.code, got.stdout+got.stderr)
	require.Contains(t, got.stdout, "redis has 400 units taken, mysql 500 claimed, 0 of parked claims and 0 lost")
	require.Contains(t, got.stderr, "the books differ: 1 of 1 campaigns")

	got = runDibs(t, s.settings, "reconcile", "-o", "json")
	require.Equal(t, exitDrift, got.code)
	var found compare.Comparison
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &found), got.stdout)
	require.Equal(t, []int64{100, 400, 500, 500}, []int64{*found.Drift, found.Redis.Taken, found.MySQL.Claimed, found.Rows.Units})
	eventually(t, 30*time.Second, "the leader does not record the drift", func() bool {
		var drift int64
		err := s.db.QueryRowContext(t.Context(), "SELECT COALESCE(drift, 0) FROM stock_watch WHERE campaign_id = ?", c.ID).Scan(&drift)
		return err == nil && drift == 100
	})

	got = runDibs(t, s.settings, "reconcile", "--repair")
	require.Equal(t, exitOK, got.code, got.stdout+got.stderr)
	require.Contains(t, got.stdout, "repaired redis: redis has 400 units taken, mysql 500 claimed, 0 of parked claims and 0 lost -> loaded again from the rows of claims")
	require.Equal(t, exitOK, runDibs(t, s.settings, "reconcile").code)
	require.Equal(t, http.StatusCreated, claimOnce(t, s.apis[0].url, c.ID, "after", 1, "").status)

	got = runDibs(t, s.settings, "reconcile", "--campaign", "none-such")
	requireRefusal(t, got, exitFailed, "no campaign none-such")
}

func eventually(t testing.TB, within time.Duration, otherwise string, so func() bool) {
	t.Helper()
	require.Eventually(t, so, within, 50*time.Millisecond, otherwise)
}

func (s *servers) keysOf(id string) lua.CampaignKeys { return s.scripts.KeysOf(id) }
