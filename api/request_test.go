package api_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/caller"
	"dibs/internal/testkit/apitest"
)

func logInto(buf *bytes.Buffer) *slog.Logger {
	return slog.New(caller.LogHandler(slog.NewJSONHandler(buf, nil)))
}

func TestRequestID_IsTakenOrMadeAndAnswered(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c1", 9)), api.Config{})
	id := func(method, path, body string, headers ...string) string {
		return strings.Join(apitest.Ask(h, method, path, body, headers...).Header().Values("X-Request-ID"), "|")
	}
	for _, good := range []string{"a", "checkout 17/é", strings.Repeat("é", 64)} {
		require.Equal(t, good, id("POST", "/v1/campaigns/c1/claims", apitest.OneClaim, "X-Request-Id: "+good))
	}
	for _, headers := range [][]string{
		nil, {"X-Request-Id: " + strings.Repeat("x", 65)}, {"X-Request-Id: a\x01"}, {"X-Request-Id: a", "X-Request-Id: b"},
	} {
		for _, path := range []string{"/v1/campaigns/c1", "/nowhere"} {
			made := id("GET", path, "", headers...)
			require.Regexp(t, `^[0-9a-f]{16}-[0-9a-z]+$`, made)
			require.NotEqual(t, made, id("GET", path, "", headers...))
		}
	}
	w := apitest.Ask(h, "POST", "/v1/campaigns/c1/close", "", "Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "X-Request-Id: mine")
	require.Equal(t, 403, w.Code)
	require.Equal(t, "mine", w.Header().Get("X-Request-ID"), "a refusal has it, too")
}

func TestRequestID_IsInTheLinesOfItsRequest(t *testing.T) {
	t.Parallel()
	for _, q := range [][3]string{
		{"POST", "/v1/campaigns/c9/claims", apitest.OneClaim}, {"POST", "/v1/claims:batch", `{"claims":[{"campaign_id":"c9","user_id":"u"}]}`},
		{"GET", "/v1/campaigns/c9", ""}, {"GET", "/v1/claims/k", ""}, {"POST", "/v1/claims/k/release", ""}, {"GET", "/readyz", ""},
	} {
		var buf bytes.Buffer
		fake := apitest.NewFake()
		fake.Fail, fake.Ready = errors.New("away"), errors.New("away")
		h := apitest.NewServer(t, fake, api.Config{Logger: logInto(&buf)})
		w := apitest.Ask(h, q[0], q[1], q[2], "X-Request-Id: r-17")
		require.Contains(t, w.Body.String(), `"status":503`, "%v", q)
		require.NotEmpty(t, buf.String(), "%v", q)
		for line := range strings.Lines(buf.String()) {
			require.Contains(t, line, `"request_id":"r-17"`, "%v", q)
		}
	}
}

func TestAccessLog_SaysWhoAskedForWhat(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	fake := apitest.NewFake(apitest.Coupon("c1", 9))
	tokens := api.Tokens{Storefront: "st0re-t0ken"}
	h := apitest.NewServer(t, fake, api.Config{Tokens: tokens, Logger: logInto(&buf)})
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim, "Authorization: Bearer st0re-t0ken").Code)
	require.Empty(t, buf.String(), "off unless asked for")

	h = apitest.NewServer(t, fake, api.Config{Tokens: tokens, Logger: logInto(&buf), AccessLog: true})
	for _, q := range []struct{ method, path, token string }{
		{"POST", "/v1/campaigns/c1/claims", "st0re-t0ken"}, {"GET", "/v1/users/ada/claims?cursor=x", "st0re-t0ken"},
		{"GET", "/v1/campaigns", "wr0ng-t0ken"}, {"GET", "/nowhere", ""},
	} {
		apitest.Ask(h, q.method, q.path, apitest.OneClaim, "Authorization: Bearer "+q.token, "X-Request-Id: r")
	}
	for _, line := range []string{
		`"method":"POST","route":"/v1/campaigns/{id}/claims","path":"/v1/campaigns/c1/claims","status":201`,
		`"method":"GET","route":"/v1/users/{user_id}/claims","path":"/v1/users/ada/claims","status":422`,
		`"route":"other","path":"/nowhere","status":404`,
	} {
		require.Contains(t, buf.String(), line)
	}
	require.Contains(t, buf.String(), `"actor":"storefront"`)
	require.NotContains(t, buf.String(), "t0ken", "no token is ever logged")
}

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
		{"campaign with a slash", "/v1/campaigns/c%2f1/claims", nil, 422, "invalid", "campaign_id"},
		{"key too long", "/v1/campaigns/c1/claims", []string{"Idempotency-Key: " + strings.Repeat("k", 256)}, 422, "invalid", "Idempotency-Key"},
		{"two keys", "/v1/campaigns/c1/claims", []string{"Idempotency-Key: a", "Idempotency-Key: a"}, 422, "invalid", "Idempotency-Key"},
		{"a form", "/v1/campaigns/c1/claims", []string{"Content-Type: application/x-www-form-urlencoded"}, 415, "unsupported_media_type", ""},
		{"compressed", "/v1/campaigns/c1/claims", []string{"Content-Encoding: gzip"}, 415, "unsupported_media_type", ""},
		{"a query", "/v1/campaigns/c1/claims?quantity=2", nil, 422, "invalid", "quantity"},
		{"no such path", "/v1/campaigns/c1/claim", nil, 404, "not_found", ""},
		{"a slash at the end", "/v1/campaigns/c1/claims/", nil, 404, "not_found", ""},
		{"two dots", "/v1/campaigns/c2/../c1/claims", nil, 404, "not_found", ""},
	} {
		p := apitest.Refused(t, c.status, c.code, h, "POST", c.path, apitest.OneClaim, c.headers...)
		require.Equal(t, c.field, p.Field, c.name)
	}
	require.Zero(t, fake.Sent())
	w := apitest.Ask(h, "PUT", "/v1/campaigns/c1/claims", apitest.OneClaim)
	apitest.RequireProblem(t, 405, w.Header(), w.Body.Bytes(), "method_not_allowed")
	require.Equal(t, "GET, HEAD, POST", w.Header().Get("Allow"))
	for i, header := range []string{"Content-Type: application/json; charset=utf-8", "Content-Type: APPLICATION/JSON", "Idempotency-Key: " + strings.Repeat("é", 255)} {
		apitest.Answered(t, 201, h, "POST", "/v1/campaigns/c1/claims", fmt.Sprintf(`{"user_id":"u%d"}`, i), header)
	}
}

func TestQuery_UnknownParametersAreRefused(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c1", 10)), api.Config{})
	for path, field := range map[string]string{
		"/v1/campaigns?limt=1": "limt", "/v1/campaigns?limit=1&limit=2": "limit", "/v1/campaigns?limit=1001": "limit",
		"/v1/campaigns?status=lost": "status", "/v1/campaigns/c1/stock?a=1&b=2": "a",
	} {
		require.Equal(t, field, apitest.Refused(t, 422, "invalid", h, "GET", path, "").Field, path)
	}
	apitest.Refused(t, 400, "malformed", h, "GET", "/v1/campaigns?%zz", "")
	for _, path := range []string{"/v1/campaigns?limit=1&cursor=a", "/v1/users/u/claims?campaign_id=c1&limit=3", "/healthz?x=1", "/metrics?collect[]=x"} {
		require.Equal(t, 200, apitest.Ask(h, "GET", path, "").Code, path)
	}
}
