package api_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/testkit/apitest"
	"dibs/lua"
	"dibs/models"
)

func TestTheBusiestCampaignsHaveSeries(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(models.Campaign{ID: "busy", Total: 5, PerUser: 1, LowStockAt: 4}, apitest.Coupon("calm", 9), apitest.Coupon("idle", 9))
	h := apitest.NewServer(t, fake, api.Config{MetricsCampaigns: 1})
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
	text := apitest.Ask(h, "GET", "/metrics", "").Body.String()
	for _, line := range []string{
		`dibs_claims_total{outcome="claimed"} 4`, `dibs_claims_total{outcome="user_limit"} 3`, `dibs_claims_per_call_count 7`,
		`dibs_http_request_seconds_count{class="4xx",route="/v1/campaigns/{id}/claims"} 3`,
	} {
		require.Contains(t, text, line+"\n")
	}
	fake.Mu.Lock()
	fake.RedisFails = errors.New("redis is away")
	fake.Mu.Unlock()
	require.Len(t, scrape(), 2, "the counts are this process' own")

	none := apitest.NewServer(t, fake, api.Config{MetricsCampaigns: -1})
	apitest.Ask(none, "POST", "/v1/campaigns/calm/claims", apitest.OneClaim, "Content-Type: application/json")
	require.NotContains(t, apitest.Ask(none, "GET", "/metrics", "").Body.String(), "dibs_campaign_claims")
}

// A sharded campaign's stock is the sum of its shards. Its claims are
// counted by shard number.
func TestACampaignOfSeveralShardsHasSeries(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(models.Campaign{ID: "c", Total: 50, Shards: 2, LowStockAt: 48})
	for i := range 2 {
		fake.Put(models.Campaign{ID: models.ShardID("c", i+1), Total: 10, Shards: 2, PerUser: 1}).InRedis = true
	}
	dry := true
	fake.OnClaim = func(_ context.Context, m lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
		if dry && m.ID == "c#2" {
			dry = false
			return []lua.ClaimReply{{Outcome: models.OutcomeDry}}, 0, nil
		}
		return fake.Sums(m, reqs)
	}
	h := apitest.NewServer(t, fake, api.Config{MetricsCampaigns: 1})
	of := [3]int{}
	for i := range 10 {
		user := fmt.Sprint("user-", i)
		of[models.ShardOfUser(user, 2)]++
		answer := apitest.Ask(h, "POST", "/v1/campaigns/c/claims", fmt.Sprintf(`{"user_id":%q}`, user), "Content-Type: application/json")
		require.Equal(t, 201, answer.Code, answer.Body)
	}
	require.NotZero(t, of[1]*of[2])
	scraped := apitest.Ask(h, "GET", "/metrics", "").Body.String()
	for _, line := range []string{
		`dibs_campaign_total_units{campaign_id="c"} 50`, `dibs_campaign_remaining_units{campaign_id="c"} 40`, `dibs_campaign_low{campaign_id="c"} 1`,
		fmt.Sprintf(`dibs_shard_claims_total{outcome="claimed",shard="1"} %d`, of[1]),
		fmt.Sprintf(`dibs_shard_claims_total{outcome="claimed",shard="2"} %d`, of[2]),
		`dibs_shard_claims_total{outcome="dry",shard="2"} 1`, `dibs_claims_held_seconds_count 1`,
	} {
		require.Contains(t, scraped, line+"\n")
	}
}

func TestMetricsHandler_MetricsAskForTheViewersToken(t *testing.T) {
	t.Parallel()
	var stuck error
	handler := func(tokens api.Tokens) http.Handler {
		h, err := api.Side{
			Addr: "127.0.0.1:80", Tokens: tokens, Logger: slog.New(slog.DiscardHandler), Gatherer: prometheus.NewRegistry(),
			Live: func() error { return stuck }, Ready: func(context.Context) error { return errors.New("the reader is stuck") },
			Info: api.Info{Version: "v1.2.3", Partitions: 4, Durability: "fast", Groups: []string{"syncer"}},
		}.Handler()
		require.NoError(t, err)
		return h
	}
	locked := handler(api.Tokens{Viewer: "v1ewer", Storefront: "st0re"})
	for token, want := range map[string]int{"wrong": 401, "st0re": 403, "v1ewer": 200} {
		apitest.Answered(t, want, locked, "GET", "/metrics", "", "Authorization: Bearer "+token)
	}
	const info = `{"version":"v1.2.3","partitions":4,"durability":"fast","groups":["syncer"]}`
	require.Equal(t, 401, apitest.Ask(locked, "GET", "/v1/info", "").Code)
	require.JSONEq(t, info, apitest.Ask(handler(api.Tokens{}), "GET", "/v1/info", "").Body.String())
	require.JSONEq(t, `{"status":"ok"}`, apitest.Ask(locked, "GET", "/healthz", "").Body.String())
	stuck = errors.New("a loop is stuck")
	require.Equal(t, 503, apitest.Ask(locked, "GET", "/healthz", "").Code)
	require.Equal(t, "the reader is stuck", apitest.Refused(t, 503, "unavailable", locked, "GET", "/readyz", "").Detail)
	require.Equal(t, 200, apitest.Ask(handler(api.Tokens{}), "GET", "/metrics", "").Code)
	waits, err := api.Side{
		Addr: "127.0.0.1:80", Logger: slog.New(slog.DiscardHandler), Gatherer: prometheus.NewRegistry(), Live: func() error { return nil },
		Ready: func(context.Context) error { return nil }, Away: func(context.Context) []string { return []string{"mysql"} },
	}.Handler()
	require.NoError(t, err)
	require.JSONEq(t, `{"status":"ready","away":["mysql"]}`, apitest.Ask(waits, "GET", "/readyz", "").Body.String())
}
