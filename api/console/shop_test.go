package console_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"dibs/internal/apitest"
)

// A page of another origin claims a unit with its user's JWT, and watches the campaign by a ticket that the shop's server asked for.
func TestAShopsPageClaimsAndWatches(t *testing.T) {
	t.Parallel()
	chromium(t)
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><html lang="en"><link rel="icon" href="data:,"><title>shop</title><h1>Sale</h1></html>`)
	}))
	t.Cleanup(shop.Close)
	takes, token := apitest.Issuer(t)
	s := serve(t, "DIBS_CORS_ORIGINS="+shop.URL, "DIBS_JWKS_FILE="+takes.File, "DIBS_JWT_ISSUER="+takes.Issuer, "DIBS_JWT_AUDIENCE="+takes.Audience)
	s.coupon("spring", 100, "")
	ticket := regexp.MustCompile(`"ticket":"([^"]+)"`).FindStringSubmatch(s.api("POST", "/v1/watch-tickets", `{"campaign_id":"spring"}`))
	require.NotNil(t, ticket)

	b := open(t, s)
	b.do(chromedp.Navigate(shop.URL))
	claim := func(origin string) string {
		return fmt.Sprintf(`fetch(%q, {method: "POST", body: JSON.stringify({user_id: "ada"}), headers: {
			"Authorization": %q, "Content-Type": "application/json", "Idempotency-Key": "order-1"}}).then(r => r.json()).then(c => c.status, e => "" + e)`,
			origin+"/v1/campaigns/spring/claims", "Bearer "+token("ada", "dibs:user"))
	}
	require.Equal(t, "claimed", eval[string](b, claim(s.url)))
	claimed := eval[int](b, fmt.Sprintf(`new Promise((done, failed) => {
		const events = new EventSource(%q);
		events.onmessage = m => { const e = JSON.parse(m.data); if (e.claimed > 0) { events.close(); done(e.claimed); } };
		events.onerror = () => { events.close(); failed("no events"); };
	})`, s.url+"/v1/campaigns/spring/watch?ticket="+ticket[1]))
	require.Equal(t, 1, claimed)
	require.Empty(t, b.said())

	other := httptest.NewServer(shop.Config.Handler)
	t.Cleanup(other.Close)
	b.do(chromedp.Navigate(other.URL))
	require.Contains(t, eval[string](b, claim(s.url)), "TypeError", "control: the browser lets no other origin's page call")
	b.said()
}
