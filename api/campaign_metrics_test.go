package api_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
	"dibs/models"
)

// TestTheBusiestCampaignsHaveSeries: as many as are wanted, whatever there are.
func TestTheBusiestCampaignsHaveSeries(t *testing.T) {
	t.Parallel()
	room := apitest.NewRoom(models.Campaign{ID: "busy", Total: 5, PerUser: 1, LowStockAt: 4}, apitest.Coupon("calm", 9), apitest.Coupon("idle", 9))
	h := apitest.NewServer(t, room, api.Config{MetricsCampaigns: 1})
	scrape := func() (lines []string) {
		for line := range strings.Lines(apitest.Ask(h, "GET", "/metrics", "").Body.String()) {
			if strings.HasPrefix(line, "dibs_campaign_") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		return lines
	}
	require.Empty(t, scrape())
	for i := range 3 {
		for range 2 {
			apitest.Ask(h, "POST", "/v1/campaigns/busy/claims", fmt.Sprintf(`{"user_id":"u%d"}`, i), "Content-Type: application/json")
		}
	}
	apitest.Ask(h, "POST", "/v1/campaigns/calm/claims", apitest.OneClaim, "Content-Type: application/json")
	require.ElementsMatch(t, []string{
		`dibs_campaign_claims_total{campaign_id="busy",outcome="claimed"} 3`, `dibs_campaign_claims_total{campaign_id="busy",outcome="user_limit"} 3`,
		`dibs_campaign_total_units{campaign_id="busy"} 5`, `dibs_campaign_remaining_units{campaign_id="busy"} 2`, `dibs_campaign_low{campaign_id="busy"} 1`,
	}, scrape())
	room.Mu.Lock()
	room.RedisFails = errors.New("redis is away")
	room.Mu.Unlock()
	require.Len(t, scrape(), 2, "the counts are this process' own")

	none := apitest.NewServer(t, room, api.Config{MetricsCampaigns: -1})
	apitest.Ask(none, "POST", "/v1/campaigns/calm/claims", apitest.OneClaim, "Content-Type: application/json")
	require.NotContains(t, apitest.Ask(none, "GET", "/metrics", "").Body.String(), "dibs_campaign_claims")
}
