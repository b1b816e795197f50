package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/auth"
	"dibs/internal/testkit/apitest"
	"dibs/models"
)

func TestScopes(t *testing.T) {
	t.Parallel()
	tokens := api.Tokens{Admin: "admin-token", Storefront: "storefront-token", Viewer: "viewer-token"}
	doc, router := apitest.Document(t, apitest.NewServer(t, apitest.NewFake(), api.Config{}))
	fresh := func() (*apitest.Fake, http.Handler) {
		fake := apitest.NewFake(models.Campaign{ID: "c1", Total: 9, Public: models.PublicLevel}, apitest.Coupon("c2", 9), models.Campaign{ID: "p", Kind: models.KindPacket})
		fake.Campaigns["c1"].Rows = []models.Claim{
			{ID: "made", CampaignID: "c1", UserID: "u", Status: models.ClaimClaimed, ExpiresAt: new(models.TimeFromMs(1))},
			{ID: "used", CampaignID: "c1", UserID: "u", Status: models.ClaimRedeemed, OrderID: "o"},
		}
		return fake, apitest.NewServer(t, fake, api.Config{Tokens: tokens})
	}
	untouched, refusing := fresh()
	untried := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			untried[method+" "+path] = true
		}
	}
	for _, c := range []struct {
		method, path, body string
		allowed            string // initials of the allowed roles
	}{
		{"POST", "/v1/campaigns", `{"id":"x","kind":"coupon","total":1}`, "a"},
		{"PATCH", "/v1/campaigns/c1", `{"total":5}`, "a"},
		{"POST", "/v1/campaigns/c2/close", ``, "a"},
		{"GET", "/v1/campaigns", ``, "av"},
		{"GET", "/v1/campaigns/c1", ``, "asv"},
		{"GET", "/v1/campaigns/c1/stock", ``, "asv"},
		{"GET", "/v1/campaigns/c1/claims", ``, "asv"},
		{"GET", "/v1/campaigns/c1/public", ``, "asvn"},
		{"GET", "/v1/campaigns/c1/shards", ``, "av"},
		{"GET", "/v1/campaigns/c1/watch", ``, "asv"},
		{"GET", "/v1/watch", ``, "av"},
		{"POST", "/v1/watch-tickets", `{"campaign_id":"c1"}`, "asv"},
		{"GET", "/metrics", ``, "av"},
		{"POST", "/v1/campaigns/c1/claims", apitest.OneClaim, "as"},
		{"POST", "/v1/claims:batch", `{"claims":[{"campaign_id":"c1","user_id":"u"}]}`, "as"},
		{"POST", "/v1/campaigns/p/packets", apitest.ASplit, "a"},
		{"GET", "/v1/claims/made", ``, "asv"},
		{"POST", "/v1/campaigns:pause", ``, "a"},
		{"POST", "/v1/claims/made/redeem", `{"order_id":"o"}`, "as"}, {"POST", "/v1/claims/used/reopen", `{"order_id":"o"}`, "as"},
		{"POST", "/v1/claims/made/extend", `{"by":"1m"}`, "as"},
		{"POST", "/v1/claims/made/release", ``, "as"},
		{"DELETE", "/v1/campaigns/c2", ``, "a"},
		{"GET", "/v1/users/u/claims", ``, "asv"},
		{"GET", "/v1/campaigns/c1/ledger", ``, "av"},
		{"GET", "/v1/settlements/2027-01-31", ``, "av"},
		{"GET", "/v1/audit", ``, "av"},
		{"GET", "/v1/groups", ``, "av"},
		{"PUT", "/v1/groups/audit", ``, "a"},
		{"DELETE", "/v1/groups/audit", ``, "a"},
		{"GET", "/v1/info", ``, "asv"},
		{"GET", "/healthz", ``, "asvn"},
		{"GET", "/readyz", ``, "asvn"},
		{"GET", "/openapi.json", ``, "asvn"},
		{"GET", "/asyncapi.json", ``, "asvn"},
	} {
		route, _, err := router.FindRoute(httptest.NewRequest(c.method, c.path, nil))
		require.NoError(t, err, c.path)
		delete(untried, c.method+" "+route.Path)
		for who, header := range map[string][]string{
			"a": {"Authorization: Bearer admin-token"}, "s": {"Authorization: bearer storefront-token"},
			"v": {"Authorization: Bearer  \tviewer-token"}, "n": nil,
		} {
			header := append(header, "Idempotency-Key: k")
			if strings.HasSuffix(c.path, ":batch") {
				header = header[:len(header)-1]
			}
			fake, h := untouched, refusing // what is refused changes nothing
			if strings.Contains(c.allowed, who) {
				fake, h = fresh()
			}
			w := apitest.Ask(h, c.method, c.path, c.body, header...)
			what := c.method + " " + c.path + " by " + who
			switch {
			case strings.Contains(c.allowed, who):
				require.Less(t, w.Code, 300, "%s: %s", what, w.Body)
			case who == "n":
				apitest.RequireProblem(t, 401, w.Header(), w.Body.Bytes(), "unauthorized")
				require.Equal(t, `Bearer realm="dibs"`, w.Header().Get("WWW-Authenticate"))
			default:
				apitest.RequireProblem(t, 403, w.Header(), w.Body.Bytes(), "forbidden")
				require.Zero(t, fake.Sent())
			}
		}
	}
	require.Empty(t, untried, "each route has its row")
}

func TestWrongTokens_ReachNobody(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 10))
	h := apitest.NewServer(t, fake, api.Config{Tokens: api.Tokens{Storefront: "secret"}})
	for _, headers := range [][]string{
		nil, {"Authorization: Bearer "}, {"Authorization: Bearer secre"}, {"Authorization: Bearer SECRET"}, {"Authorization: Basic secret"},
		{"Authorization: secret"}, {"Authorization: Bearer secret", "Authorization: Bearer secret"},
	} {
		w := apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim, headers...)
		apitest.RequireProblem(t, 401, w.Header(), w.Body.Bytes(), "unauthorized")
		require.NotContains(t, w.Body.String(), "secret")
	}
	apitest.Answered(t, 401, h, "POST", "/v1/campaigns", `{"id":"x","kind":"coupon","total":1}`, "Authorization: Bearer ")
	require.Zero(t, fake.Sent())
	require.Equal(t, 201, apitest.Ask(h, "POST", "/v1/campaigns/c1/claims", apitest.OneClaim, "Authorization: Bearer secret").Code)
}

func TestChangesOfTheTokensFile_AreInTheAuditLog(t *testing.T) {
	t.Parallel()
	line := func(name string) string {
		text, err := auth.Line(name, "viewer", name+"-t0ken", time.Time{})
		require.NoError(t, err)
		return text + "\n"
	}
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, []byte(line("anna")+line("bert")), 0o600))
	fake := apitest.NewFake(apitest.Coupon("c1", 9))
	h := apitest.NewServer(t, fake, api.Config{Tokens: api.Tokens{File: file}})
	require.NoError(t, os.WriteFile(file, []byte(line("bert")+line("cleo")+line("dora")), 0o600))
	var noted []models.AuditEntry
	require.Eventually(t, func() bool {
		apitest.Ask(h, "GET", "/v1/campaigns", "", "Authorization: Bearer cleo-t0ken")
		noted = slices.DeleteFunc(fake.Audit.Noted(), func(e models.AuditEntry) bool { return e.Action == models.AuditTokenRefused })
		return len(noted) > 0
	}, time.Minute, time.Millisecond)
	require.Equal(t, []models.AuditEntry{
		{Action: "tokens.reloaded", After: []byte(`{"tokens":3,"added":["cleo","dora"],"removed":["anna"]}`)},
	}, noted)
}

func TestRefusedTokens_AreInTheAuditLog(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("c1", 9))
	h := apitest.NewServer(t, fake, api.Config{Tokens: api.Tokens{Storefront: "st0re", Viewer: "v1ewer"}})
	for range 20 {
		apitest.Ask(h, "GET", "/v1/campaigns", "", "Authorization: Bearer wr0ng", "X-Request-Id: r1")
		apitest.Ask(h, "GET", "/v1/campaigns", "", "Authorization: Bearer st0re", "X-Request-Id: r2")
		apitest.Ask(h, "GET", "/v1/campaigns", "", "X-Request-Id: r3")
	}
	require.Eventually(t, func() bool { return len(fake.Audit.Noted()) == 2 }, time.Minute, time.Millisecond)
	noted := fake.Audit.Noted()
	slices.SortFunc(noted, func(a, b models.AuditEntry) int { return strings.Compare(a.RequestID, b.RequestID) })
	require.Equal(t, []models.AuditEntry{
		{Actor: "", RequestID: "r1", Action: "token.refused", After: []byte(`{"address":"192.0.2.1","reason":"unknown","count":1}`)},
		{Actor: "storefront", RequestID: "r2", Action: "token.refused", After: []byte(`{"address":"192.0.2.1","reason":"forbidden","count":1}`)},
	}, noted)
}

// The address is tested by its limit: the 51st wrong token of one address
// gets 429.
func TestTrustedProxies_TellTheAddressAndNobodyElseDoes(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(), api.Config{
		Tokens: api.Tokens{Viewer: "v1ewer"}, TrustedProxies: api.Proxies{netip.MustParsePrefix("10.0.0.0/8")},
	})
	ask := func(peer, token string, forwarded ...string) int {
		r := httptest.NewRequest(http.MethodGet, "/v1/campaigns", nil)
		r.RemoteAddr = peer
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header["X-Forwarded-For"] = forwarded
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	exhaust := func(peer string, forwarded ...string) {
		for range 50 {
			require.Equal(t, http.StatusUnauthorized, ask(peer, "guess", forwarded...))
		}
	}
	exhaust("10.0.0.1:1000", "192.0.2.1, 10.9.9.9")
	for _, same := range [][]string{{"192.0.2.1"}, {"6.6.6.6, 192.0.2.1"}, {"6.6.6.6", "192.0.2.1", "10.1.1.1"}, {"192.0.2.1:8080"}, {"::ffff:192.0.2.1"}} {
		require.Equal(t, http.StatusTooManyRequests, ask("10.0.0.2:1", "guess", same...), same)
	}
	require.Equal(t, http.StatusUnauthorized, ask("10.0.0.1:1000", "guess", "192.0.2.2"), "others behind the proxy are others")
	require.Equal(t, http.StatusUnauthorized, ask("10.0.0.1:1000", "guess", "192.0.2.1, 192.0.2.3"), "the last one that is no proxy")
	require.Equal(t, http.StatusOK, ask("10.0.0.1:1000", "v1ewer", "192.0.2.1"), "a good token passes")

	for i := range 50 { // no other peer is trusted
		require.Equal(t, http.StatusUnauthorized, ask("192.0.2.9:1", "guess", fmt.Sprintf("192.0.3.%d", i)))
	}
	require.Equal(t, http.StatusTooManyRequests, ask("192.0.2.9:1", "guess", "192.0.3.99"))

	// the proxy's own address if its header is unreadable
	exhaust("10.0.0.3:1", "192.0.2.1, who knows")
	require.Equal(t, http.StatusTooManyRequests, ask("10.0.0.3:7", "guess"))
}

// A stream must end with its token: when it is revoked, expires, or may no
// longer watch.
func TestWatch_EndsWithItsToken(t *testing.T) {
	t.Parallel()
	line := func(name, role, token string, until time.Time) string {
		text, err := auth.Line(name, role, token, until)
		require.NoError(t, err)
		return text + "\n"
	}
	for what, then := range map[string]string{
		"taken away": "", "expires": "same", "demoted": line("eve", "storefront", "t0ken", time.Time{}),
		"control": line("eve", "viewer", "t0ken", time.Time{}),
	} {
		synctest.Test(t, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "tokens")
			until := time.Time{}
			if then == "same" {
				until = time.Now().Add(25 * time.Second)
			}
			require.NoError(t, os.WriteFile(file, []byte(line("eve", "viewer", "t0ken", until)), 0o600))
			h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c1", 3)), api.Config{Tokens: api.Tokens{Admin: "adm1n", File: file}})
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/watch", nil)
			r.Header.Set("Authorization", "Bearer t0ken")
			ended := make(chan struct{})
			w := httptest.NewRecorder()
			go func() {
				defer close(ended)
				h.ServeHTTP(w, r)
			}()
			<-time.After(25 * time.Second)
			if then != "same" {
				require.NoError(t, os.WriteFile(file, []byte(then), 0o600))
			}
			select {
			case <-ended:
				require.NotEqual(t, "control", what)
			case <-time.After(11 * time.Second):
				require.Equal(t, "control", what, "the stream goes on")
			}
		})
	}
}
