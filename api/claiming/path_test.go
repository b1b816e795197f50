package claiming_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"dibs/api/claiming/form"

	"github.com/stretchr/testify/require"
)

const claimPattern = "POST /v1/campaigns/{id}/claims"

// routed returns the handler and the campaign of a request: from a
// ServeMux alone, or behind the fast path.
func routed(t *testing.T, r *http.Request, fast bool) (handler, campaign string) {
	t.Helper()
	claim := func(_ http.ResponseWriter, r *http.Request) { handler, campaign = "claim", form.CampaignOf(r) }
	mux := http.NewServeMux()
	mux.HandleFunc(claimPattern, claim)
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) { handler = "other" })
	all := http.Handler(mux)
	if fast {
		all = form.FastPath(claim, mux)
	}
	all.ServeHTTP(httptest.NewRecorder(), r)
	return handler, campaign
}

// The fast path must choose the handler and campaign that the mux would.
func TestFastPathIsTheMux(t *testing.T) {
	t.Parallel()
	ids := []string{
		"c1", "a.b_c-D", ".", "..", "...", "", "/", "a/b", "a//b", "%2e%2e", "%2f", "c%31", "c%01", "é", "a b", "claims", "x/claims", "a%", "*",
		strings.Repeat("c", 64), strings.Repeat("c", 65),
	}
	fasts := 0
	for _, method := range []string{"POST", "GET", "PUT", "OPTIONS", "post"} {
		for _, start := range []string{"/v1/campaigns/", "//v1/campaigns/", "/v1/./campaigns/", "/v1/campaigns", "/V1/campaigns/"} {
			for _, end := range []string{"/claims", "/claims/", "//claims", "/claims?q=1", "/claims/..", "/close", ""} {
				for _, id := range ids {
					u, err := url.ParseRequestURI(start + id + end)
					if err != nil {
						continue
					}
					r := &http.Request{Method: method, URL: u, Header: http.Header{}, Host: "127.0.0.1"}
					wantHandler, wantCampaign := routed(t, r.Clone(t.Context()), false)
					handler, campaign := routed(t, r.Clone(t.Context()), true)
					require.Equal(t, wantHandler, handler, "%s %s", method, u)
					require.Equal(t, wantCampaign, campaign, "%s %s", method, u)
					claim := func(http.ResponseWriter, *http.Request) { fasts++ }
					form.FastPath(claim, http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
				}
			}
		}
	}
	require.Positive(t, fasts, "something must take the fast path")
}
