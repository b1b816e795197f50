package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
)

// Archiving an old campaign, killed and restarted many times,
// must leave each claim in one table and the counters right, and
// must not slow down claims of another campaign.
func TestArchiveBesideARushAndKilled(t *testing.T) {
	t.Parallel()
	claims, rate := testenv.Pick(10_000, 1_000_000), testenv.Pick(500, 1_000)
	s := newSystem(t, setup{ownSQL: true})
	old := openCampaign(t, s.apis[0].url, campaign{Total: int64(claims), PerUser: 1})
	made := startRush(t, crowd.Plan{BaseURLs: s.urls(), CampaignID: old.ID, Users: claims, Connections: 8, Batch: 200}).wait()
	require.Equal(t, claims, made.Accepted)
	require.Equal(t, http.StatusOK, call(t, http.MethodPost, s.apis[0].url+"/v1/campaigns/"+old.ID+"/close", "", map[string]any{}).status)
	number := func(query string, args ...any) (n int) {
		require.NoError(t, s.db.QueryRowContext(t.Context(), query, args...).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool {
		return number("SELECT COUNT(*) FROM campaigns WHERE id = ? AND closed_told_at IS NOT NULL AND synced_seq = ?", old.ID, claims) == 1
	}, time.Minute, pollEvery)

	fresh := openCampaign(t, s.apis[0].url, campaign{Total: 10_000_000, PerUser: 1})
	rush := startRush(t, crowd.Plan{BaseURLs: s.urls(), CampaignID: fresh.ID, Users: 10_000_000, Connections: 32, PerSecond: float64(rate)})
	rush.reaches(rate)
	started, kills := time.Now(), 0
	for gone := 0; gone < claims; {
		cmd := exec.Command(binary(t), "archive", "--before", "2100-01-01", "--campaign", old.ID)
		cmd.Env = environ(s.settings)
		cmd.Stderr = os.Stderr
		exited := spawn(t, cmd)
		want := gone + claims/5
		for gone < claims && gone < want && !closed(exited) {
			gone = number("SELECT archived_claims FROM campaigns WHERE id = ?", old.ID)
		}
		_ = cmd.Process.Kill() // it may have ended
		<-exited
		if kills++; gone == claims {
			break
		}
		gone = number("SELECT archived_claims FROM campaigns WHERE id = ?", old.ID)
	}
	took := time.Since(started)
	tally := rush.breakOff()
	require.Greater(t, kills, 2)
	got := runDibs(t, s.settings, "archive", "--before", "2100-01-01", "--campaign", old.ID)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Equal(t, []int{claims, claims, 0}, []int{
		number("SELECT COUNT(*) FROM claims_archive WHERE campaign_id = ?", old.ID),
		number("SELECT COUNT(DISTINCT seq) FROM claims_archive WHERE campaign_id = ?", old.ID),
		number("SELECT COUNT(*) FROM claims WHERE campaign_id = ?", old.ID),
	})
	again := claimOnce(t, s.apis[0].url, old.ID, "user-1", 1, "")
	require.Equal(t, "closed", again.code(), "no one claims twice")
	s.checkBooks(fresh, tally, false)
	got = runDibs(t, s.settings, "reconcile")
	require.Equal(t, exitOK, got.code, got.stdout+got.stderr)
	pace := float64(tally.Accepted) / tally.Took.Seconds() / float64(rate)
	if testenv.Soak() {
		require.Greater(t, pace, 0.95, "of the rate at which users came")
	}
	t.Logf("%d claims archived in %s, %d kills; beside it %.3f of %d claims a second", claims, took.Round(time.Millisecond), kills, pace, rate)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
