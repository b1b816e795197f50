package api_test

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
	"dibs/models"
)

func TestDeps_EachIsNeeded(t *testing.T) {
	t.Parallel()
	for i := range reflect.TypeFor[api.Deps]().NumField() {
		if name := reflect.TypeFor[api.Deps]().Field(i).Name; name == "Console" || name == "Losses" || name == "Away" || name == "Mover" || name == "Rows" || name == "Attempts" {
			continue // optional
		}
		deps := apitest.NewFake().Deps()
		field := reflect.ValueOf(&deps).Elem().Field(i)
		field.SetZero()
		_, err := api.New(api.Config{}, deps)
		require.ErrorIs(t, err, api.ErrConfig, reflect.TypeFor[api.Deps]().Field(i).Name)
	}
}

func TestConfig_ARegistryIsBothHalves(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	for _, half := range []api.Config{{Registerer: reg}, {Gatherer: reg}} {
		_, err := api.New(half, apitest.NewFake().Deps())
		require.ErrorIs(t, err, api.ErrConfig)
		require.ErrorContains(t, err, "Gatherer")
	}
}

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
		w = apitest.Ask(h, http.MethodGet, url+"/", "")
		apitest.RequireProblem(t, 404, w.Header(), w.Body.Bytes(), "not_found")
	}
}

func TestRoutes_TheDocumentHasTheirTextsAndEveryRefusal(t *testing.T) {
	t.Parallel()
	doc, _ := apitest.Document(t, apitest.NewServer(t, apitest.NewFake(), api.Config{}))
	for path, item := range doc.Paths.Map() {
		open := strings.HasSuffix(path, "/public") || path == "/healthz" || path == "/readyz" || path == "/openapi.json" || path == "/asyncapi.json"
		for method, op := range item.Operations() {
			what := method + " " + path
			require.NotEmpty(t, op.OperationID, what)
			require.NotEmpty(t, op.Summary, what)
			require.Len(t, op.Tags, 1, what)
			require.Greater(t, len(op.Description), 20, what)
			for _, p := range op.Parameters {
				require.NotEmpty(t, p.Value.Description, "%s %s", what, p.Value.Name)
			}
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
	r.stop()
	require.NoError(t, apitest.Receive(t, r.done))
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
	w := apitest.Ask(h, "GET", "/v1/claims/x", "")
	apitest.RequireProblem(t, 500, w.Header(), w.Body.Bytes(), "internal")
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim).Code)
	require.Contains(t, apitest.Ask(h, "GET", "/metrics", "").Body.String(),
		`dibs_http_request_seconds_count{class="5xx",route="/v1/claims/{id}"} 1`)
	w = apitest.Ask(abortable{h}, "GET", "/v1/claims/abort", "")
	require.Equal(t, "aborted", w.Body.String(), "net/http's own abort passes")
}

type panicking struct{ *apitest.Fake }

func (panicking) Claim(_ context.Context, id string) (models.Claim, error) {
	if id == "abort" {
		panic(http.ErrAbortHandler)
	}
	panic("oh")
}

type abortable struct{ http.Handler }

func (a abortable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if v := recover(); v == http.ErrAbortHandler { //nolint:errorlint // the very value
			_, _ = w.Write([]byte("aborted"))
		}
	}()
	a.Handler.ServeHTTP(w, r)
}
