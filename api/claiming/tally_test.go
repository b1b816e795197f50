package claiming_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api/claiming"
	"dibs/internal/apitest"
	"dibs/models"
)

// Refusals of single claims and of batches count, whether the claim
// was sent or not. Claims and replays don't.
func TestRefusalsAreCountedByCampaign(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(models.Campaign{ID: "a", Total: 100, PerUser: 1}, models.Campaign{ID: "b", Status: models.StatusPaused})
	s, h, _ := routes(fake, time.Now)
	claim := func(id string) int {
		return apitest.Ask(h, "POST", "/v1/campaigns/"+id+"/claims", apitest.OneClaim, "Idempotency-Key: k").Code
	}
	require.Equal(t, 201, claim("a"))
	require.Equal(t, 201, claim("a"), "a replay")
	require.Equal(t, 409, claim("b"))
	require.Equal(t, 404, claim("nowhere"))
	w := apitest.Ask(h, "POST", "/v1/claims:batch", `{"claims":[{"campaign_id":"a","user_id":"u1"},{"campaign_id":"a","user_id":"u2"},`+
		`{"campaign_id":"b","user_id":"u"},{"campaign_id":"nowhere","user_id":"u"},{"campaign_id":"a","user_id":""}]}`)
	require.Equal(t, 200, w.Code, w.Body)
	counts := s.Answered(2)
	for _, byName := range counts {
		maps.DeleteFunc(byName, func(name string, _ int64) bool { return strings.HasPrefix(name, models.TookPrefix) })
	}
	require.Equal(t, map[string]map[string]int64{"a": {"claimed": 2, "user_limit": 1}, "b": {"paused": 2}}, counts, "a replay is no news")
	require.Empty(t, s.Answered(2), "once")
	require.Equal(t, []claiming.Tally{{CampaignID: "a", Claims: 3, ByOutcome: counts["a"]}}, s.Busiest(1))
	require.Equal(t, 409, claim("b"))
	require.EqualValues(t, 1, s.Answered(2)["b"]["paused"])
	require.Empty(t, s.Answered(0))
}
