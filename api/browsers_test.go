package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/testkit/apitest"
)

const shop = "https://shop.example.com"

func TestCORS_OnlyConfiguredOriginsMayCall(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c1", 9)), api.Config{
		Tokens: api.Tokens{Storefront: "st0re"}, CORSOrigins: []string{shop, "http://localhost:5173"},
	})
	ask := func(method, path, origin string, headers ...string) http.Header {
		return apitest.Ask(h, method, path, "", append(headers, "Origin: "+origin)...).Header()
	}
	preflight := func(origin string) http.Header {
		return ask(http.MethodOptions, "/v1/campaigns/c1/claims", origin, "Access-Control-Request-Method: POST",
			"Access-Control-Request-Headers: authorization,baggage,content-type,idempotency-key,x-of-another")
	}
	for _, origin := range []string{shop, "http://localhost:5173"} {
		got := preflight(origin)
		require.Equal(t, origin, got.Get("Access-Control-Allow-Origin"))
		require.Equal(t, "POST", got.Get("Access-Control-Allow-Methods"))
		require.Equal(t, "authorization,baggage,content-type,idempotency-key,x-of-another", got.Get("Access-Control-Allow-Headers"))
		require.Empty(t, got.Get("Access-Control-Allow-Credentials"), "no cookie counts here")
		got = ask("GET", "/v1/campaigns", origin)
		require.Equal(t, origin, got.Get("Access-Control-Allow-Origin"), "a refusal can be read as well")
		require.Contains(t, got.Get("Access-Control-Expose-Headers"), "Retry-After")
	}
	for _, origin := range []string{"https://shop.example.com.evil.example", "https://example.com", "http://shop.example.com", "null"} {
		require.Empty(t, preflight(origin).Get("Access-Control-Allow-Origin"), origin)
		require.Empty(t, ask("GET", "/v1/campaigns", origin).Get("Access-Control-Allow-Origin"), origin)
	}
	require.Empty(t, ask("GET", "/healthz", shop).Get("Access-Control-Allow-Origin"), "of the API alone")
}

// Pages can't read a header that isn't exposed.
func TestCORS_PagesCanReadEveryHeaderOfTheDocument(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c1", 9)), api.Config{CORSOrigins: []string{shop}})
	exposed := strings.Split(strings.ToLower(apitest.Ask(h, "GET", "/v1/info", "", "Origin: "+shop).Header().Get("Access-Control-Expose-Headers")), ", ")
	var document struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct{ Headers map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal(apitest.Ask(h, "GET", "/openapi.json", "").Body.Bytes(), &document))
	found := map[string]bool{}
	for _, methods := range document.Paths {
		for _, operation := range methods {
			for _, response := range operation.Responses {
				for header := range response.Headers {
					found[header] = true
					require.Contains(t, exposed, strings.ToLower(header))
				}
			}
		}
	}
	require.Greater(t, len(found), 4)
}

func TestCORS_WithoutTokensAConfiguredOriginMayClaim(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c1", 9)), api.Config{CORSOrigins: []string{shop}})
	claim := func(origin string) int {
		return apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim, "Origin: "+origin, "Sec-Fetch-Site: cross-site").Code
	}
	require.Equal(t, 201, claim(shop))
	require.Equal(t, 403, claim("https://other.example.com"))
}

func TestCORS_OriginsMustBeExact(t *testing.T) {
	t.Parallel()
	for _, origin := range []string{"*", "shop.example.com", "https://shop.example.com/", "https://shop.example.com:443"} {
		_, err := api.New(api.Config{CORSOrigins: []string{origin}}, apitest.NewFake().Deps())
		require.ErrorIs(t, err, api.ErrConfig, origin)
	}
}

func TestWatchTicket_IsUsedOnceWithinAMinute(t *testing.T) {
	t.Parallel()
	now := time.Now()
	fake := apitest.NewFake(apitest.Coupon("c1", 9))
	config := api.Config{Tokens: api.Tokens{Storefront: "st0re", Viewer: "v1ewer"}, Clock: func() time.Time { return now }}
	h := apitest.NewServer(t, fake, config)
	ticket := func(token string) string {
		w := apitest.Ask(h, "POST", "/v1/watch-tickets", `{"campaign_id":"c1"}`, "Content-Type: application/json", "Authorization: Bearer "+token)
		require.Equal(t, 200, w.Code, w.Body)
		var got struct {
			Ticket    string    `json:"ticket"`
			ExpiresAt time.Time `json:"expires_at"`
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		require.WithinDuration(t, now.Add(time.Minute), got.ExpiresAt, time.Second)
		return got.Ticket
	}
	watch := func(path, ticket string, headers ...string) int {
		return apitest.Ask(h, "GET", path+"?ticket="+ticket, "", headers...).Code
	}
	require.Equal(t, 401, apitest.Ask(h, "POST", "/v1/watch-tickets", `{"campaign_id":"c1"}`, "Content-Type: application/json").Code)
	require.Equal(t, 422, apitest.Ask(h, "POST", "/v1/watch-tickets", `{}`, "Content-Type: application/json", "Authorization: Bearer st0re").Code)
	const path = "/v1/campaigns/c1/watch"
	one := ticket("st0re")
	require.Equal(t, 403, watch("/v1/campaigns/secret/watch", one), "it is for one campaign")
	require.Equal(t, 200, watch(path, one))
	require.Equal(t, 401, watch(path, one), "used before")
	require.Equal(t, 401, watch(path, "forged"), "without Redis being asked")
	require.Equal(t, 401, watch(path, "forged", "Authorization: Bearer v1ewer"))
	require.Equal(t, 422, watch("/v1/watch", ticket("v1ewer"), "Authorization: Bearer v1ewer"), "nothing else takes one")
	late := ticket("v1ewer")
	now = now.Add(61 * time.Second)
	require.Equal(t, 401, watch(path, late))

	other := apitest.NewServer(t, fake, config)
	one = ticket("v1ewer")
	require.Equal(t, 200, apitest.Ask(other, "GET", path+"?ticket="+one, "").Code, "any process takes it")
	require.Equal(t, 401, watch(path, one))
}

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
