package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/testkit/apitest"
	"dibs/models"
)

// Each route answers other methods with 405 and its Allow, and refuses a
// body that it doesn't use.
func TestRoutes_AllowIsWhatTheDocumentHas(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(), api.Config{})
	doc, _ := apitest.Document(t, h)
	require.Greater(t, len(doc.Paths.Map()), 15)
	for path, item := range doc.Paths.Map() {
		want := map[string]bool{}
		for method := range item.Operations() {
			want[method] = true
			if method == http.MethodGet {
				want[http.MethodHead] = true
			}
		}
		url := strings.NewReplacer("{id}", "x", "{user_id}", "x", "{name}", "x").Replace(path)
		w := apitest.Ask(h, http.MethodTrace, url, "")
		apitest.RequireProblem(t, 405, w.Header(), w.Body.Bytes(), "method_not_allowed")
		got := map[string]bool{}
		for method := range strings.SplitSeq(w.Header().Get("Allow"), ", ") {
			got[method] = true
		}
		require.Equal(t, want, got, path)
		apitest.Refused(t, 404, "not_found", h, http.MethodGet, url+"/", "")
	}
}

func TestRoutes_TheDocumentHasEveryRefusal(t *testing.T) {
	t.Parallel()
	doc, _ := apitest.Document(t, apitest.NewServer(t, apitest.NewFake(), api.Config{}))
	for path, item := range doc.Paths.Map() {
		open := strings.HasSuffix(path, "/public") || path == "/healthz" || path == "/readyz" || path == "/openapi.json" || path == "/asyncapi.json"
		for method, op := range item.Operations() {
			what := method + " " + path
			require.NotNil(t, op.Security, what)
			asksNothing := len(*op.Security) == 1 && len((*op.Security)[0]) == 0
			require.Equal(t, open, asksNothing, what)
			require.Equal(t, open, op.Responses.Status(401) == nil, what)
			require.NotNil(t, op.Responses.Status(403), what)
			require.NotNil(t, op.Responses.Status(503).Value.Headers["Retry-After"], what)
			require.NotNil(t, op.Responses.Status(500), what)
			if op.RequestBody != nil {
				require.NotNil(t, op.RequestBody.Value.Content["application/json"].Example, what)
				for _, status := range []int{400, 413, 422} {
					require.NotNil(t, op.Responses.Status(status), "%s %d", what, status)
				}
			}
		}
	}
	claim := doc.Components.Schemas["NewClaim"].Value
	require.NotContains(t, claim.Required, "quantity")
	require.Nil(t, claim.Properties["quantity"].Value.Default, "a default makes generated clients require it")
}

// HEAD is GET without a body, also for a missing page.
func TestRoutes_HeadIsGetWithoutItsBody(t *testing.T) {
	t.Parallel()
	r := run(t, apitest.NewFake(apitest.Coupon("c1", 1)), api.Config{})
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr}
	for path, status := range map[string]int{"/healthz": 200, "/v1/campaigns/c1": 200, "/v1/users/%2F/claims": 200, "/v1/campaigns/none": 404, "/none": 404} {
		resp, err := client.Head("http://" + r.addr + path)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, status, resp.StatusCode, path)
	}
	streams := "HEAD /v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n" + "HEAD /v1/campaigns/c1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n" +
		"HEAD /v1/campaigns/c1/ledger HTTP/1.1\r\nHost: localhost\r\nAccept: text/csv\r\n\r\n"
	answers, _ := r.raw(t, streams+"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	require.Equal(t, 4, strings.Count(answers, "HTTP/1.1 200 OK"), answers)
	require.Equal(t, 2, strings.Count(answers, "Content-Type: text/event-stream\r\n"), "no stream keeps the next request waiting")
	require.Equal(t, 1, strings.Count(answers, "Content-Type: text/csv; charset=utf-8\r\n"))
}

// A panic in a handler must fail only its own request.
func TestServe_APanicIsOneRequests(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 1))
	deps := fake.Deps()
	deps.Claims = panicking{fake}
	s, err := api.New(api.Config{}, deps)
	require.NoError(t, err)
	h := apitest.AtHome(s.Handler())
	apitest.Refused(t, 500, "internal", h, "GET", "/v1/claims/x", "")
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim).Code)
	require.Contains(t, apitest.Ask(h, "GET", "/metrics", "").Body.String(),
		`dibs_http_request_seconds_count{class="5xx",route="/v1/claims/{id}"} 1`)
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { apitest.Ask(h, "GET", "/v1/claims/abort", "") }, "net/http's own abort passes")
}

type panicking struct{ *apitest.Fake }

func (panicking) Claim(_ context.Context, id string) (models.Claim, error) {
	if id == "abort" {
		panic(http.ErrAbortHandler)
	}
	panic("oh")
}
