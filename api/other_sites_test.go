package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
)

func visit(h http.Handler, host string, header map[string]string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/v1/campaigns/c1/claims", strings.NewReader(`{"user_id":"ada"}`))
	r.Host = host
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPagesOfOtherSitesMayNotCallAServiceWithoutTokens(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	open := apitest.NewServer(t, fake, api.Config{})
	for _, host := range []string{"127.0.0.1:8080", "localhost:8080", "[::1]:8080", "localhost", "127.0.0.1"} {
		require.Equal(t, http.StatusCreated, visit(open, host, nil).Code, host)
	}
	for name, w := range map[string]*httptest.ResponseRecorder{
		"another origin": visit(open, "127.0.0.1:8080", map[string]string{"Origin": "https://evil.example"}),
		"another site":   visit(open, "127.0.0.1:8080", map[string]string{"Sec-Fetch-Site": "cross-site"}),
		"another name":   visit(open, "evil.example", nil),
		"a longer name":  visit(open, "127.0.0.1.evil.example:8080", nil),
	} {
		apitest.RequireProblem(t, http.StatusForbidden, w.Header(), w.Body.Bytes(), "forbidden")
		require.NotContains(t, w.Body.String(), "ada", name)
	}
	locked := apitest.NewServer(t, fake, api.Config{Tokens: api.Tokens{Storefront: "s3cret"}})
	require.Equal(t, http.StatusCreated, visit(locked, "shop.example", map[string]string{
		"Authorization": "Bearer s3cret", "Origin": "https://shop.example",
	}).Code, "with tokens any name and origin will do")
}
