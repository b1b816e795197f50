package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
)

func TestBadHeadersAndPaths(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	h := apitest.NewServer(t, fake, api.Config{})
	for _, c := range []struct {
		name, path  string
		headers     []string
		status      int
		code, field string
	}{
		{"campaign with a control character", "/v1/campaigns/c%01/claims", nil, 422, "invalid", "campaign_id"},
		{"campaign with a slash", "/v1/campaigns/c%2f1/claims", nil, 422, "invalid", "campaign_id"},
		{"key too long", "/v1/campaigns/c1/claims", []string{"Idempotency-Key: " + strings.Repeat("k", 256)}, 422, "invalid", "Idempotency-Key"},
		{"key not UTF-8", "/v1/campaigns/c1/claims", []string{"Idempotency-Key: a\xff"}, 422, "invalid", "Idempotency-Key"},
		{"two keys", "/v1/campaigns/c1/claims", []string{"Idempotency-Key: a", "Idempotency-Key: a"}, 422, "invalid", "Idempotency-Key"},
		{"a form", "/v1/campaigns/c1/claims", []string{"Content-Type: application/x-www-form-urlencoded"}, 415, "unsupported_media_type", ""},
		{"compressed", "/v1/campaigns/c1/claims", []string{"Content-Encoding: gzip"}, 415, "unsupported_media_type", ""},
		{"a query", "/v1/campaigns/c1/claims?quantity=2", nil, 422, "invalid", "quantity"},
		{"no such path", "/v1/campaigns/c1/claim", nil, 404, "not_found", ""},
		{"a slash too many", "/v1//campaigns/c1/claims", nil, 404, "not_found", ""},
		{"a slash at the end", "/v1/campaigns/c1/claims/", nil, 404, "not_found", ""},
		{"no campaign", "/v1/campaigns//claims", nil, 404, "not_found", ""},
		{"two dots", "/v1/campaigns/c2/../c1/claims", nil, 404, "not_found", ""},
	} {
		w := apitest.Ask(h, "POST", c.path, apitest.OneClaim, c.headers...)
		require.Equal(t, c.status, w.Code, "%s: %s", c.name, w.Body)
		p := apitest.RequireProblem(t, c.status, w.Header(), w.Body.Bytes(), c.code)
		require.Equal(t, c.field, p.Field, c.name)
	}
	require.Zero(t, fake.Sent())
	w := apitest.Ask(h, "PUT", "/v1/campaigns/c1/claims", apitest.OneClaim)
	apitest.RequireProblem(t, 405, w.Header(), w.Body.Bytes(), "method_not_allowed")
	require.Equal(t, "GET, HEAD, POST", w.Header().Get("Allow"))
	for i, header := range []string{"Content-Type: application/json; charset=utf-8", "Content-Type: APPLICATION/JSON", "Idempotency-Key: " + strings.Repeat("é", 255)} {
		w = apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", fmt.Sprintf(`{"user_id":"u%d"}`, i), header)
		require.Equal(t, 201, w.Code, "control: %s", header)
	}
}

func TestQuery_UnknownParametersAreRefused(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c1", 10)), api.Config{})
	for path, field := range map[string]string{
		"/v1/campaigns?limt=1": "limt", "/v1/campaigns?limit=1&limit=2": "limit", "/v1/campaigns/c1?x": "x", "/v1/users/u/claims?campaign=c1": "campaign",
		"/v1/campaigns/c1/stock?a=1&b=2": "a", "/v1/users/%2F/claims?b=": "b", "/v1/campaigns?" + strings.Repeat("é", 50): strings.Repeat("é", 32) + "…",
	} {
		w := apitest.Ask(h, "GET", path, "")
		require.Equal(t, field, apitest.RequireProblem(t, 422, w.Header(), w.Body.Bytes(), "invalid").Field, path)
	}
	w := apitest.Ask(h, "GET", "/v1/campaigns?%zz", "")
	apitest.RequireProblem(t, 400, w.Header(), w.Body.Bytes(), "malformed")
	for _, path := range []string{"/v1/campaigns?limit=1&cursor=a", "/v1/users/u/claims?campaign_id=c1&limit=3", "/healthz?x=1", "/metrics?collect[]=x"} {
		require.Equal(t, 200, apitest.Ask(h, "GET", path, "").Code, path)
	}
}
