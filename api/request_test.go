package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
	"dibs/internal/caller"
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
		require.Equal(t, good, id("GET", "/v1/campaigns/c1", "", "X-Request-Id: "+good))
		require.Equal(t, good, id("POST", "/v1/campaigns/c1/claims", apitest.OneClaim, "X-Request-Id: "+good))
	}
	seen := map[string]bool{}
	for _, headers := range [][]string{
		nil, {"X-Request-Id: "}, {"X-Request-Id: " + strings.Repeat("x", 65)}, {"X-Request-Id: a\x01"}, {"X-Request-Id: \xff"},
		{"X-Request-Id: a", "X-Request-Id: b"},
	} {
		for _, path := range []string{"/v1/campaigns/c1", "/nowhere", "/healthz", "//"} {
			made := id("GET", path, "", headers...)
			require.Regexp(t, `^[0-9a-f]{16}-[0-9a-z]+$`, made)
			require.False(t, seen[made])
			seen[made] = true
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
		{"GET", "/v1/campaigns/c9", ""}, {"POST", "/v1/campaigns", `{"id":"c9","kind":"coupon","total":1}`}, {"GET", "/v1/campaigns/c9/stock", ""},
		{"GET", "/v1/claims/k", ""}, {"GET", "/v1/users/u/claims", ""}, {"POST", "/v1/claims/k/release", ""}, {"GET", "/readyz", ""},
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
	var lines []string
	for line := range strings.Lines(buf.String()) {
		var l struct {
			Msg, Method, Route, Path, Actor, Address string
			Status                                   int
			TookMs                                   float64 `json:"took_ms"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		if l.Msg == "tokens were refused" {
			continue
		}
		require.Equal(t, "request", l.Msg)
		require.NotEmpty(t, l.Address)
		require.GreaterOrEqual(t, l.TookMs, 0.0)
		lines = append(lines, strings.Join([]string{l.Method, l.Route, l.Path, l.Actor, string(rune('0' + l.Status/100))}, " "))
	}
	require.Equal(t, []string{
		"POST /v1/campaigns/{id}/claims /v1/campaigns/c1/claims storefront 2", "GET /v1/users/{user_id}/claims /v1/users/ada/claims storefront 4",
		"GET /v1/campaigns /v1/campaigns  4", "GET other /nowhere  4",
	}, lines)
	require.NotContains(t, buf.String(), "t0ken", "no token is ever logged")
}
