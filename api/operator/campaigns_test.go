package operator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
	"dibs/lua"
	"dibs/models"
)

func TestCampaign_CreateGetChangeClose(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake()
	h := apitest.NewServer(t, fake, api.Config{Clock: func() time.Time { return apitest.Now }})
	body := `{"id":"spring.2027_a-b","kind":"coupon","name":"Spring","total":100,"per_user":3,"per_user_per_day":2,
		"time_zone":"America/New_York","starts_at":"2027-03-14T02:30:00.1239-05:00","ends_at":"2027-03-20T00:00:00Z","low_stock_at":10,
		"currency":"EUR","sender_id":"s 1","hold_for":"15m"}`
	want := `{"id":"spring.2027_a-b","kind":"coupon","name":"Spring","status":"open","total":100,"per_user":3,"per_user_per_day":2,` +
		`"limits":[{"by":"user","per":"all","max":3},{"by":"user","per":"day","max":2}],` +
		`"time_zone":"America/New_York","starts_at":"2027-03-14T07:30:00.123Z","ends_at":"2027-03-20T00:00:00.000Z","low_stock_at":10,` +
		`"currency":"EUR","sender_id":"s 1","hold_for":"15m0s","version":1,"created_at":"2027-03-14T15:09:26.535Z","updated_at":"2027-03-14T15:09:26.535Z"}`
	w := apitest.Ask(h, "POST", "/v1/campaigns", body)
	require.Equal(t, 201, w.Code, w.Body)
	require.Equal(t, want, w.Body.String())
	require.Equal(t, "/v1/campaigns/spring.2027_a-b", w.Header().Get("Location"))
	w = apitest.Ask(h, "POST", "/v1/campaigns", body)
	require.Equal(t, 200, w.Code)
	require.Equal(t, want, w.Body.String())
	w = apitest.Ask(h, "POST", "/v1/campaigns", `{"id":"spring.2027_a-b","kind":"coupon","total":101}`)
	apitest.RequireProblem(t, 409, w.Header(), w.Body.Bytes(), "campaign_exists")
	w = apitest.Ask(h, "GET", "/v1/campaigns/spring.2027_a-b", "")
	require.Equal(t, want, w.Body.String())

	w = apitest.Ask(h, "PATCH", "/v1/campaigns/spring.2027_a-b", `{"total":50,"per_user":0,"per_user_per_day":1,"starts_at":"2027-01-01T00:00:00Z","ends_at":"2028-01-01T00:00:00Z","low_stock_at":5,"status":"paused"}`)
	require.Equal(t, 200, w.Code, w.Body)
	c := fake.Campaigns["spring.2027_a-b"].Campaign
	require.Equal(t, []any{int64(50), int64(0), int64(1), int64(5), models.StatusPaused, 2027, 2028},
		[]any{c.Total, c.PerUser, c.PerUserPerDay, c.LowStockAt, c.Status, c.StartsAt.Year(), c.EndsAt.Year()})
	w = apitest.Ask(h, "PATCH", "/v1/campaigns/spring.2027_a-b", `{}`)
	require.Equal(t, 200, w.Code)
	require.EqualValues(t, 2, fake.Campaigns["spring.2027_a-b"].Changes, "nothing asked, nothing changed")
	w = apitest.Ask(h, "PATCH", "/v1/campaigns/spring.2027_a-b", `{"ends_at":"2026-01-01T00:00:00Z"}`)
	require.Equal(t, "ends_at", apitest.RequireProblem(t, 422, w.Header(), w.Body.Bytes(), "invalid").Field)

	w = apitest.Ask(h, "PATCH", "/v1/campaigns/spring.2027_a-b", `{"name":"Sprung","public":"count"}`)
	require.Equal(t, 200, w.Code, w.Body)
	w = apitest.Ask(h, "GET", "/v1/campaigns/spring.2027_a-b/public", "")
	require.Contains(t, w.Body.String(), `"name":"Sprung"`)
	w = apitest.Ask(h, "PATCH", "/v1/campaigns/spring.2027_a-b", `{"public":false}`)
	require.NotContains(t, w.Body.String(), "public")
	w = apitest.Ask(h, "PATCH", "/v1/campaigns/spring.2027_a-b", `{"ends_at":null}`)
	require.Equal(t, 200, w.Code, w.Body)
	c = fake.Campaigns["spring.2027_a-b"].Campaign
	require.NotNil(t, c.StartsAt)
	require.Nil(t, c.EndsAt, "null clears it")
	w = apitest.Ask(h, "PATCH", "/v1/campaigns/spring.2027_a-b", `{"starts_at": null }`)
	require.Equal(t, 200, w.Code, w.Body)
	require.NotContains(t, w.Body.String(), "starts_at")

	for range 2 {
		w = apitest.Ask(h, "POST", "/v1/campaigns/spring.2027_a-b/close", "")
		require.Equal(t, 200, w.Code)
		require.Contains(t, w.Body.String(), `"status":"closed"`)
	}
	for _, change := range []string{`{"status":"open"}`, `{"total":1}`} {
		w = apitest.Ask(h, "PATCH", "/v1/campaigns/spring.2027_a-b", change)
		apitest.RequireProblem(t, 409, w.Header(), w.Body.Bytes(), "closed")
	}
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns", `{"id":"p","kind":"packet","currency":"CNY","sender_id":"boss"}`).Code)
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns", `{"id":"q","kind":"packet","per_user":0}`).Code)
	require.Equal(t, []int64{1, 0}, []int64{fake.Campaigns["p"].PerUser, fake.Campaigns["q"].PerUser}, "a default of packets")
	require.Equal(t, "UTC", fake.Campaigns["p"].TimeZone)
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns", `{"id":"c1","kind":"coupon","total":1}`).Code)
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim).Code)
	w = apitest.Ask(h, "DELETE", "/v1/campaigns/c1", "")
	apitest.RequireProblem(t, 409, w.Header(), w.Body.Bytes(), "claimed")
	require.Equal(t, 204, apitest.Ask(h, "DELETE", "/v1/campaigns/spring.2027_a-b", "").Code)
	for _, q := range [][3]string{{"GET", ""}, {"PATCH", `{"total":1}`}, {"POST", "/close"}, {"GET", "/stock"}, {"DELETE", ""}} {
		path, payload := "/v1/campaigns/none", ""
		if q[0] == "PATCH" {
			payload = q[1]
		} else {
			path += q[1]
		}
		w = apitest.Ask(h, q[0], path, payload)
		apitest.RequireProblem(t, 404, w.Header(), w.Body.Bytes(), "campaign_not_found")
	}
}

func TestCampaigns_PagesFollowOneAnother(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake()
	h := apitest.NewServer(t, fake, api.Config{})
	type page struct {
		Campaigns  []struct{ ID string }
		NextCursor *string `json:"next_cursor"`
	}
	read := func(query string) (p page) {
		w := apitest.Ask(h, "GET", "/v1/campaigns"+query, "")
		require.Equal(t, 200, w.Code, w.Body)
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
		return p
	}
	require.JSONEq(t, `{"campaigns":[]}`, apitest.Ask(h, "GET", "/v1/campaigns", "").Body.String())
	for i := range 250 {
		fake.Put(apitest.Coupon(fmt.Sprintf("c%03d", i), 1))
	}
	require.Len(t, read("").Campaigns, 100)
	var ids []string
	query := "?limit=50"
	for pages := 1; ; pages++ {
		p := read(query)
		for _, c := range p.Campaigns {
			ids = append(ids, c.ID)
		}
		if p.NextCursor == nil {
			require.Equal(t, 5, pages, "the last full page knows that it is the last")
			break
		}
		query = "?limit=50&cursor=" + *p.NextCursor
	}
	require.Len(t, ids, 250)
	require.IsIncreasing(t, ids)
	for query, field := range map[string]string{"?limit=0": "limit", "?limit=1001": "limit", "?limit=x": "limit", "?cursor=a%20b": "cursor"} {
		w := apitest.Ask(h, "GET", "/v1/campaigns"+query, "")
		require.Equal(t, field, apitest.RequireProblem(t, 422, w.Header(), w.Body.Bytes(), "invalid").Field)
	}
}

func TestStock_BacklogIsNeverDrift(t *testing.T) {
	t.Parallel()
	c1 := apitest.Coupon("c1", 10)
	c1.LowStockAt = 4
	fake := apitest.NewFake(c1)
	h := apitest.NewServer(t, fake, api.Config{})
	read := func() models.Stock { return stockOf(t, h) }
	at := models.NewTime(apitest.Now)
	require.Equal(t, models.Stock{CampaignID: "c1", Total: 10, Remaining: 10, AsOf: at}, read())
	for i := range 6 {
		require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", fmt.Sprintf(`{"user_id":"u%d"}`, i)).Code)
	}
	f := fake.Campaigns["c1"]
	f.Lag = 2
	require.Equal(t, models.Stock{CampaignID: "c1", Total: 10, Remaining: 4, Claimed: 6, Synced: 4, Backlog: 2, Low: true, AsOf: at}, read())
	f.Lag, f.Parked = 2, 1
	require.Equal(t, models.Stock{CampaignID: "c1", Total: 10, Remaining: 4, Claimed: 6, Synced: 4, Backlog: 1, Parked: 1, Low: true, AsOf: at}, read())
	f.Lag = 1
	require.Equal(t, models.Stock{CampaignID: "c1", Total: 10, Remaining: 4, Claimed: 6, Synced: 5, Parked: 1, Low: true, AsOf: at}, read(),
		"a claim that can't be written is neither on its way nor drift")
	f.Lag, f.Parked = 0, 0
	require.Equal(t, models.Stock{CampaignID: "c1", Total: 10, Remaining: 4, Claimed: 6, Synced: 6, Low: true, AsOf: at}, read())
	f.Lag = -1
	require.Equal(t, models.Stock{CampaignID: "c1", Total: 10, Remaining: 4, Claimed: 6, Synced: 7, Drift: 1, Low: true, AsOf: at}, read(),
		"MySQL ahead of Redis: Redis lost a claim, and has a unit too many")
	f.Lag, f.Shrunk = 0, 2
	require.EqualValues(t, 2, read().Drift, "remaining was changed by hand")
	f.Shrunk = 0
	f.Total = 3
	require.EqualValues(t, 0, read().Remaining, "lowered below what is taken")

	f.InRedis = false
	require.EqualValues(t, 6, read().Claimed, "restored")
	f.InRedis = false
	fake.Fail = lua.ErrDamaged
	w := apitest.Ask(h, "GET", "/v1/campaigns/c1/stock", "")
	apitest.RequireProblem(t, 503, w.Header(), w.Body.Bytes(), "unavailable")
}

// Reading an evicted campaign's stock must not load it: MySQL has all of it.
func TestStock_OfAnEvictedCampaignIsMySQLs(t *testing.T) {
	t.Parallel()
	c1 := apitest.Coupon("c1", 10)
	c1.LowStockAt = 6
	fake := apitest.NewFake(c1)
	h := apitest.NewServer(t, fake, api.Config{})
	for i := range 4 {
		require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", fmt.Sprintf(`{"user_id":"u%d"}`, i)).Code)
	}
	fake.Campaigns["c1"].InRedis, fake.Campaigns["c1"].Evicted = false, true
	want := models.Stock{CampaignID: "c1", Total: 10, Remaining: 6, Claimed: 4, Synced: 4, Low: true, AsOf: models.NewTime(apitest.Now)}
	require.Equal(t, want, stockOf(t, h))
	require.False(t, fake.Campaigns["c1"].InRedis, "nothing was loaded")
}

func TestClose_TakesNoBodyThatSaysSomething(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 9))
	h := apitest.NewServer(t, fake, api.Config{})
	const path, asJSON = "/v1/campaigns/c1/close", "Content-Type: application/json"
	for _, bad := range []struct {
		body   string
		status int
		code   string
	}{
		{`{"x":1}`, 422, "invalid"}, {`{`, 400, "malformed"}, {`[]`, 400, "malformed"}, {`{} {}`, 400, "malformed"},
		{strings.Repeat("x", 100<<10), 413, "too_large"}, {strings.Repeat(" ", 2<<10) + `{}`, 413, "too_large"},
	} {
		w := apitest.Ask(h, "POST", path, bad.body, asJSON)
		apitest.RequireProblem(t, bad.status, w.Header(), w.Body.Bytes(), bad.code)
	}
	w := apitest.Ask(h, "POST", path, `{}`, "Content-Type: text/plain")
	apitest.RequireProblem(t, 415, w.Header(), w.Body.Bytes(), "unsupported_media_type")
	require.Equal(t, models.StatusOpen, fake.Campaigns["c1"].Status, "a refusal closes nothing")
	for _, good := range []string{`{}`, " {\n} ", ``, ` `, ` null`} {
		w := apitest.Ask(h, "POST", path, good, asJSON)
		require.Equal(t, 200, w.Code, w.Body)
	}
	w = apitest.Ask(h, "POST", path, ``, "Content-Type: application/x-www-form-urlencoded")
	require.Equal(t, 200, w.Code, w.Body)
}

// If Redis missed a close that MySQL has, a repeated close must reach
// Redis. Until then claims continue.
func TestCampaign_CloseAskedForAgainIsPassedOn(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	h := apitest.NewServer(t, fake, api.Config{})
	require.Equal(t, 200, apitest.Ask(h, "POST", "/v1/campaigns/c1/close", "").Code)
	fake.Fail = lua.ErrUnavailable
	w := apitest.Ask(h, "POST", "/v1/campaigns/c1/close", "")
	apitest.RequireProblem(t, 503, w.Header(), w.Body.Bytes(), "unavailable")
	require.Contains(t, w.Body.String(), "stored")
}

// late is a MySQL that answers no change in time for a pause, the
// next one in its own time, and a Redis without the campaign.
type late struct {
	*apitest.Fake

	changes int
}

func (f *late) Change(ctx context.Context, id string, change models.Change) (models.Campaign, error) {
	f.changes++
	if f.changes == 1 {
		<-ctx.Done()
		return models.Campaign{}, ctx.Err()
	}
	return f.Fake.Change(ctx, id, change)
}

func (*late) Pause(context.Context, string) (models.Campaign, error) {
	return models.Campaign{}, lua.ErrAbsent
}

func TestCampaign_APauseWaitsForMySQLIfRedisLacksTheCampaign(t *testing.T) {
	t.Parallel()
	fake := &late{Fake: apitest.NewFake(apitest.Coupon("spring", 10))}
	deps := fake.Deps()
	deps.Campaigns = fake
	server, err := api.New(api.Config{}, deps)
	require.NoError(t, err)
	w := apitest.Ask(apitest.AtHome(server.Handler()), "PATCH", "/v1/campaigns/spring", `{"status":"paused"}`)
	require.Equal(t, 200, w.Code, w.Body)
	require.Equal(t, models.StatusPaused, fake.Campaigns["spring"].Status)
}
