package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
)

// The address is tested by its limit: the 51st wrong token of one address
// gets 429.
func TestTrustedProxies_TellTheAddressAndNobodyElseDoes(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(), api.Config{
		Tokens: api.Tokens{Viewer: "v1ewer"}, TrustedProxies: api.Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
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

	exhaust("[fd00::1]:1", "[2001:db8::1]:443")
	require.Equal(t, http.StatusTooManyRequests, ask("10.0.0.1:1", "guess", "2001:db8::2"), "the same /64")
	// the proxy's own address if its header is unreadable
	exhaust("10.0.0.3:1", "192.0.2.1, who knows")
	require.Equal(t, http.StatusTooManyRequests, ask("10.0.0.3:7", "guess"))
}
