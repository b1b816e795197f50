package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
)

// TestEmptyRedisSellsNothingAgain: a Redis that comes back without its data is not taken for a full stock. The campaigns it had
// refuse, as long as no one rebuilds them; new ones work at once, in all parts.
func TestEmptyRedisSellsNothingAgain(t *testing.T) {
	t.Parallel()
	s := newSystem(t, wishes{apis: 2})
	c := openCampaign(t, s.apis[0].url, campaign{Total: 300, PerUser: 2})
	tally := startRush(t, crowd.Plan{BaseURLs: s.urls(), CampaignID: c.ID, Users: 200, Connections: 20}).wait()
	s.checkBooks(c, tally, false)
	before, err := readRows(t.Context(), s.db, c.ID)
	require.NoError(t, err)

	s.redis.Kill()
	s.redis.Start()     // without persistence: empty
	s.apis[0].kill9()   // one that knows nothing of the campaign
	s.apis[0].restart() // and one that does
	for _, url := range s.urls() {
		for _, user := range []string{"user-1", "someone new"} {
			refused := claimOnce(t, url, c.ID, user, 1, "")
			for refused.code() == "outcome_unknown" { // its connections are those of the Redis that was killed
				refused = claimOnce(t, url, c.ID, user, 1, "")
			}
			requireRetryable(t, refused, "unavailable")
		}
		_, err := stockOf(t.Context(), url, c.ID)
		require.Error(t, err, "what is not known is not shown")
	}

	fresh := openCampaign(t, s.apis[0].url, campaign{Total: 100, PerUser: 1})
	again := startRush(t, crowd.Plan{BaseURLs: s.urls(), CampaignID: fresh.ID, Users: 200, Connections: 20}).wait()
	s.checkBooks(fresh, again, true)
	after, err := readRows(t.Context(), s.db, c.ID)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// TestAQuietLossGivesNothingUp: Redis loses all while a consumer is behind, and no one claims after that. A repair names what was answered,
// gives nothing up, and the campaign takes no claims until an operator does.
func TestAQuietLossGivesNothingUp(t *testing.T) {
	t.Parallel()
	s := newSystem(t, wishes{})
	api := s.apis[0].url
	c := openCampaign(t, api, campaign{Total: 20})
	for i := range 5 {
		require.Equal(t, http.StatusCreated, claimUntilAnswered(t, api, c.ID, fmt.Sprint("booked-", i), 1, "").status)
	}
	s.awaitSynced(c.ID, 5)
	s.consumers[0].stop()
	for i := range 10 {
		require.Equal(t, http.StatusCreated, claimUntilAnswered(t, api, c.ID, fmt.Sprint("answered-", i), 1, "").status)
	}
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	s.consumers[0].restart()
	args := []string{"reconcile", "--repair", "--campaign", c.ID}
	got := runDibs(t, s.settings, args...)
	require.Equal(t, exitDrift, got.code, got.stdout)
	require.Contains(t, got.stdout, "seq 6 to 15;")
	require.Equal(t, http.StatusServiceUnavailable, claimOnce(t, api, c.ID, "late", 1, "").status)
	got = runDibs(t, s.settings, append(args, "--give-up-claims")...)
	require.Zero(t, got.code, got.stdout)
	require.Contains(t, got.stdout, "10 claims known to be lost")
	for i := range 15 {
		require.Equal(t, http.StatusCreated, claimUntilAnswered(t, api, c.ID, fmt.Sprint("late-", i), 1, "").status)
	}
	require.Equal(t, "sold_out", claimOnce(t, api, c.ID, "last", 1, "").code())
}
