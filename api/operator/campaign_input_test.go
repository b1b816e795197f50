package operator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/operator"
	"dibs/internal/testkit/apitest"
	"dibs/models"
)

type badBody struct {
	name, body  string
	status      int
	code, field string
}

func TestBadCampaigns_AreRefusedByName(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	h := apitest.NewServer(t, fake, api.Config{})
	with := func(more string) string { return `{"id":"n","kind":"coupon","total":1` + more + `}` }
	refused := func(method, path string, c badBody) {
		w := apitest.Ask(h, method, path, c.body)
		p := apitest.RequireProblem(t, c.status, w.Header(), w.Body.Bytes(), c.code)
		require.Equal(t, c.field, p.Field, "%s: %s", c.name, w.Body)
	}
	for _, c := range []badBody{
		{"empty", ``, 400, "malformed", ""},
		{"too large", with(strings.Repeat(" ", 1<<20)), 413, "too_large", ""},
		{"no id", `{"kind":"coupon","total":1}`, 422, "invalid", "id"},
		{"id with a control character", `{"id":"a\u0001","kind":"coupon","total":1}`, 422, "invalid", "id"},
		{"other kind", `{"id":"n","kind":"lottery","total":1}`, 422, "invalid", "kind"},
		{"no total", `{"id":"n","kind":"coupon"}`, 422, "invalid", "total"},
		{"total of packets", `{"id":"n","kind":"packet","total":1}`, 422, "invalid", "total"},
		{"total beyond", `{"id":"n","kind":"coupon","total":1000000000001}`, 422, "invalid", "total"},
		{"status", with(`,"status":"open"`), 422, "invalid", "status"},
		{"zone local", with(`,"time_zone":"Local"`), 422, "invalid", "time_zone"},
		{"starts_at", with(`,"starts_at":"tomorrow"`), 422, "invalid", "starts_at"},
		{"ends_at before 1970", with(`,"ends_at":"1969-01-01T00:00:00Z"`), 422, "invalid", "ends_at"},
		{"hold_for a number", with(`,"hold_for":15`), 422, "invalid", "hold_for"},
		{"public true", with(`,"public":true`), 422, "invalid", "public"},
		{"currency that there is not", with(`,"currency":"ZZZ"`), 422, "invalid", "currency"},
		{"ended before it started", with(`,"ends_at":"2001-01-01T00:00:00Z"`), 422, "invalid", "ends_at"},
		{"more a day than in all", with(`,"per_user":2,"per_user_per_day":3`), 422, "invalid", "per_user_per_day"},
		{"low from the start", with(`,"low_stock_at":2`), 422, "invalid", "low_stock_at"},
		{"held for a moment", with(`,"hold_for":"999ms"`), 422, "invalid", "hold_for"},
	} {
		refused("POST", "/v1/campaigns", c)
	}
	for _, c := range []badBody{
		{"kind", `{"kind":"packet"}`, 422, "invalid", "kind"},
		{"null", `{"low_stock_at":null}`, 422, "invalid", "low_stock_at"}, {"null", `{"status":null}`, 422, "invalid", "status"},
		{"no time", `{"ends_at":""}`, 422, "invalid", "ends_at"},
		{"closed", `{"status":"closed"}`, 422, "invalid", "status"},
		{"more a day than in all", `{"per_user":2,"per_user_per_day":3}`, 422, "invalid", "per_user_per_day"},
		{"low from now on", `{"low_stock_at":11}`, 422, "invalid", "low_stock_at"},
	} {
		refused("PATCH", "/v1/campaigns/c1", c)
	}
	require.Len(t, fake.Campaigns, 1)
	require.EqualValues(t, 0, fake.Campaigns["c1"].Version, "nothing was changed")
}

func TestOpenAPI_RequestsOfOperatorsNameEveryFieldThatIsDecoded(t *testing.T) {
	t.Parallel()
	apitest.RequireFields(t, apitest.NewServer(t, apitest.NewFake(), api.Config{}), operator.RequestFields())
}

// An existing campaign with a contradiction that new ones may not have must
// still accept the same creation again, and changes.
func TestContradictions_OfBeforeKeepGoing(t *testing.T) {
	t.Parallel()
	ended := apitest.Now.Add(-24 * time.Hour)
	fake := apitest.NewFake(models.Campaign{ID: "old", Total: 5, PerUser: 1, PerUserPerDay: 2, LowStockAt: 9, Currency: "ZZZ", EndsAt: &ended})
	h := apitest.NewServer(t, fake, api.Config{Clock: func() time.Time { return apitest.Now }})
	again := `{"id":"old","kind":"coupon","total":5,"per_user":1,"per_user_per_day":2,"low_stock_at":9,"currency":"ZZZ","ends_at":"2027-03-13T15:09:26.535Z"}`
	require.Equal(t, 200, apitest.Ask(h, "POST", "/v1/campaigns", again).Code)
	for _, change := range []string{`{"status":"paused"}`, `{"total":4}`, `{"ends_at":"2027-03-13T15:09:26.535Z"}`, `{"per_user":3}`} {
		require.Equal(t, 200, apitest.Ask(h, "PATCH", "/v1/campaigns/old", change).Code, change)
	}
	require.Equal(t, 200, apitest.Ask(h, "PATCH", "/v1/campaigns/old", `{"per_user":1}`).Code, "a limit is lowered in a rush")
	w := apitest.Ask(h, "POST", "/v1/campaigns", strings.Replace(again, `"old"`, `"new"`, 1))
	require.Equal(t, "ends_at", apitest.RequireProblem(t, 422, w.Header(), w.Body.Bytes(), "invalid").Field)
}
