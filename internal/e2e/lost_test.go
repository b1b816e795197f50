package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
)

// TestEmptyRedisSellsNothingAgain: a Redis that comes back without its data is not taken for a full stock. The campaigns it had
// refuse, as long as nobody rebuilds them; new ones work at once, in all parts.
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
		for _, user := range []string{"user-1", "somebody new"} {
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
