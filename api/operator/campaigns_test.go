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
	"dibs/internal/testkit/apitest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

func TestMain(m *testing.M) { testenv.Main(m) }

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
	w := apitest.Answered(t, 201, h, "POST", "/v1/campaigns", body)
	require.Equal(t, want, w.Body.String())
	require.Equal(t, "/v1/campaigns/spring.2027_a-b", w.Header().Get("Location"))
	w = apitest.Answered(t, 200, h, "POST", "/v1/campaigns", body)
	require.Equal(t, want, w.Body.String())
	apitest.Refused(t, 409, "campaign_exists", h, "POST", "/v1/campaigns", `{"id":"spring.2027_a-b","kind":"coupon","total":101}`)
	const path = "/v1/campaigns/spring.2027_a-b"
	require.Equal(t, want, apitest.Ask(h, "GET", path, "").Body.String())

	patch := func(change string) string {
		t.Helper()
		return apitest.Answered(t, 200, h, "PATCH", path, change).Body.String()
	}
	patch(`{"total":50,"per_user":0,"per_user_per_day":1,"low_stock_at":5,"status":"paused",
		"starts_at":"2027-01-01T00:00:00Z","ends_at":"2028-01-01T00:00:00Z"}`)
	c := fake.Campaigns["spring.2027_a-b"].Campaign
	require.Equal(t, []any{int64(50), int64(0), int64(1), int64(5), models.StatusPaused, 2027, 2028},
		[]any{c.Total, c.PerUser, c.PerUserPerDay, c.LowStockAt, c.Status, c.StartsAt.Year(), c.EndsAt.Year()})
	patch(`{}`)
	require.EqualValues(t, 2, fake.Campaigns["spring.2027_a-b"].Changes, "nothing asked, nothing changed")
	require.Equal(t, "ends_at", apitest.Refused(t, 422, "invalid", h, "PATCH", path, `{"ends_at":"2026-01-01T00:00:00Z"}`).Field)
	patch(`{"name":"Sprung","public":"count"}`)
	require.Contains(t, apitest.Ask(h, "GET", path+"/public", "").Body.String(), `"name":"Sprung"`)
	require.NotContains(t, patch(`{"public":false}`), "public")
	require.Contains(t, patch(`{"ends_at":null}`), "starts_at")
	require.NotContains(t, patch(`{"starts_at": null }`), "_at\":\"2028", "null clears it")

	for range 2 {
		w = apitest.Answered(t, 200, h, "POST", path+"/close", "")
		require.Contains(t, w.Body.String(), `"status":"closed"`)
	}
	for _, change := range []string{`{"status":"open"}`, `{"total":1}`} {
		apitest.Refused(t, 409, "closed", h, "PATCH", path, change)
	}
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns", `{"id":"p","kind":"packet","currency":"CNY","sender_id":"boss"}`).Code)
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns", `{"id":"q","kind":"packet","per_user":0}`).Code)
	require.Equal(t, []int64{1, 0}, []int64{fake.Campaigns["p"].PerUser, fake.Campaigns["q"].PerUser}, "a default of packets")
	require.Equal(t, "UTC", fake.Campaigns["p"].TimeZone)
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns", `{"id":"c1","kind":"coupon","total":1}`).Code)
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim).Code)
	apitest.Refused(t, 409, "claimed", h, "DELETE", "/v1/campaigns/c1", "")
	require.Equal(t, 204, apitest.Ask(h, "DELETE", path, "").Code)
	for _, q := range [][3]string{{"GET"}, {"PATCH", "", `{"total":1}`}, {"POST", "/close"}, {"GET", "/stock"}, {"DELETE"}} {
		apitest.Refused(t, 404, "campaign_not_found", h, q[0], "/v1/campaigns/none"+q[1], q[2])
	}
}

func TestCampaigns_PagesFollowOneAnother(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake()
	h := apitest.NewServer(t, fake, api.Config{})
	type page struct {
		Campaigns  []struct{ ID string }
		NextCursor string `json:"next_cursor"`
	}
	read := func(query string) (p page) {
		w := apitest.Answered(t, 200, h, "GET", "/v1/campaigns"+query, "")
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
		return p
	}
	for i := range 250 {
		fake.Put(apitest.Coupon(fmt.Sprintf("c%03d", i), 1))
	}
	require.Len(t, read("").Campaigns, 100)
	var ids []string
	cursor := ""
	for range 5 {
		p := read("?limit=50&cursor=" + cursor)
		for _, c := range p.Campaigns {
			ids = append(ids, c.ID)
		}
		cursor = p.NextCursor
	}
	require.Empty(t, cursor, "the last full page knows that it is the last")
	require.Len(t, ids, 250)
	require.IsIncreasing(t, ids)
	require.Equal(t, "cursor", apitest.Refused(t, 422, "invalid", h, "GET", "/v1/campaigns?cursor=a%20b", "").Field)
	require.Equal(t, "cursor", apitest.Refused(t, 422, "invalid", h, "GET", "/v1/campaigns?after=a&cursor=b", "").Field)
	for _, text := range []string{"%FF", "%00"} {
		require.Equal(t, "q", apitest.Refused(t, 422, "invalid", h, "GET", "/v1/campaigns?q="+text, "").Field)
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
	f.Lag, f.Parked = 1, 1
	require.Equal(t, models.Stock{CampaignID: "c1", Total: 10, Remaining: 4, Claimed: 6, Synced: 5, Parked: 1, Low: true, AsOf: at}, read(),
		"a claim that can't be written is neither on its way nor drift")
	f.Lag, f.Parked = -1, 0
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
	apitest.Refused(t, 503, "unavailable", h, "GET", "/v1/campaigns/c1/stock", "")
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
		{`{"x":1}`, 422, "invalid"}, {`{`, 400, "malformed"}, {strings.Repeat("x", 100<<10), 413, "too_large"},
	} {
		apitest.Refused(t, bad.status, bad.code, h, "POST", path, bad.body, asJSON)
	}
	apitest.Refused(t, 415, "unsupported_media_type", h, "POST", path, `{}`, "Content-Type: text/plain")
	require.Equal(t, models.StatusOpen, fake.Campaigns["c1"].Status, "a refusal closes nothing")
	for _, good := range []string{`{}`, " {\n} ", ``, ` `, ` null`} {
		apitest.Answered(t, 200, h, "POST", path, good, asJSON)
	}
	apitest.Answered(t, 200, h, "POST", path, ``, "Content-Type: application/x-www-form-urlencoded")
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
	apitest.Answered(t, 200, apitest.AtHome(server.Handler()), "PATCH", "/v1/campaigns/spring", `{"status":"paused"}`)
	require.Equal(t, models.StatusPaused, fake.Campaigns["spring"].Status)
}

func TestCampaign_IfMatchKeepsOneChangeFromUndoingAnother(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(), api.Config{})
	const path = "/v1/campaigns/spring"
	tag := func(method, path, body string, wantVersion int, headers ...string) string {
		t.Helper()
		w := apitest.Ask(h, method, path, body, headers...)
		require.Equal(t, 2, w.Code/100, w.Body)
		var c struct{ Version int }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &c))
		require.Equal(t, wantVersion, c.Version)
		require.Regexp(t, `^"[0-9]+"$`, w.Header().Get("ETag"))
		return w.Header().Get("ETag")
	}
	const create = `{"id":"spring","kind":"coupon","total":100}`
	first := tag("POST", "/v1/campaigns", create, 1)
	require.Equal(t, first, tag("POST", "/v1/campaigns", create, 1), "the same again")
	require.Equal(t, first, tag("GET", path, "", 1, "If-Match: "+first))
	second := tag("PATCH", path, `{"total":110}`, 2, "If-Match: "+first)
	require.NotEqual(t, first, second)
	require.Equal(t, second, tag("GET", path, "", 2))
	require.Equal(t, second, tag("PATCH", path, `{"total":110}`, 2, "If-Match: "+second), "nothing changed")

	for _, stale := range []string{first, `W/` + first, second[1 : len(second)-1], `"x", ` + first} {
		for _, q := range [][3]string{{"PATCH", path, `{"total":110}`}, {"PATCH", path, `{}`}, {"POST", path + "/close", ""}, {"GET", path, ""}} {
			apitest.Refused(t, 412, "precondition_failed", h, q[0], q[1], q[2], "If-Match: "+stale)
		}
	}
	require.Equal(t, second, tag("GET", path, "", 2), "a change that was refused changed nothing")
	require.Equal(t, second, tag("PATCH", path, `{"total":110}`, 2, "If-Match: W/"+second), "a proxy that compresses makes it weak")
	third := tag("PATCH", path, `{"total":120}`, 3, "If-Match: "+first+`, "x", `+second)
	require.Equal(t, third, tag("PATCH", path, `{"total":120}`, 3, "If-Match: "+first, "If-Match: "+third), "two lines are one list")
	require.Equal(t, third, tag("PATCH", path, `{"total":120}`, 3, "If-Match: ", "If-Match: "+third))
	for _, none := range [][]string{{"If-Match: "}, {"If-Match: ", "If-Match: " + first}, {"If-Match:  , "}} {
		apitest.Refused(t, 412, "precondition_failed", h, "PATCH", path, `{"total":121}`, none...)
	}
	fourth := tag("PATCH", path, `{"total":130}`, 4, "If-Match: *")
	require.NotEqual(t, third, fourth)
	tag("POST", path+"/close", "", 5, "If-Match: "+fourth)
	tag("POST", path+"/close", "", 5)
	apitest.Refused(t, 404, "campaign_not_found", h, "PATCH", "/v1/campaigns/none", `{"total":1}`, `If-Match: "1"`)
}
