package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
)

// behindProxy is a system whose API reaches Redis through a
// proxy that can cut connections.
func behindProxy(t *testing.T) (*system, *toxiproxy.Proxy) {
	t.Helper()
	var proxy *toxiproxy.Proxy
	s := newSystem(t, setup{apiRedis: func(url string) string {
		proxy = machine.Proxy(t, strings.TrimSuffix(strings.TrimPrefix(url, "redis://"), "/0"))
		return "redis://" + proxy.Listen
	}})
	return s, proxy
}

// Ways to lose a reply. Downstream is from Redis to the API: the
// script has run when its reply is cut.
const (
	cutAnswers  = `{"name": "cut", "type": "limit_data", "stream": "downstream", "attributes": {"bytes": 0}}`
	resetOnData = `{"name": "cut", "type": "reset_peer", "stream": "downstream", "attributes": {"timeout": 0}}`
	cutRequests = `{"name": "cut", "type": "limit_data", "stream": "upstream", "attributes": {"bytes": 0}}`
)

func cut(t testing.TB, proxy *toxiproxy.Proxy, toxic string) {
	t.Helper()
	_, err := proxy.Toxics.AddToxicJson(strings.NewReader(toxic))
	require.NoError(t, err)
}

func mend(t testing.TB, proxy *toxiproxy.Proxy) {
	t.Helper()
	require.NoError(t, proxy.Toxics.RemoveToxic(t.Context(), "cut"))
}

// A lost reply must become outcome_unknown, never a refusal, and
// its retry must not claim twice.
func TestLostAnswerIsOutcomeUnknownAndTheRetryGetsTheClaim(t *testing.T) {
	t.Parallel()
	s, proxy := behindProxy(t)
	c := openCampaign(t, s.apis[0].url, campaign{Total: 100, PerUser: 1})
	tally := merged()
	book1(t, &tally, claimOnce(t, s.apis[0].url, c.ID, "early", 1, ""))
	for i, toxic := range []string{cutAnswers, resetOnData, cutRequests} {
		user, key := fmt.Sprintf("unlucky %d", i), fmt.Sprintf("key %d", i)
		cut(t, proxy, toxic)
		lost := claimOnce(t, s.apis[0].url, c.ID, user, 1, key)
		requireRetryable(t, lost, "outcome_unknown")
		mend(t, proxy)
		if toxic != cutRequests {
			state, err := s.scripts.State(t.Context(), c.ID)
			require.NoError(t, err)
			require.Equal(t, int64(tally.Accepted)+1, state.Seq, "the script ran")
		}
		again := claimUntilAnswered(t, s.apis[0].url, c.ID, user, 1, key)
		book1(t, &tally, again)
		ran := "true"
		if toxic == cutRequests {
			ran = ""
		}
		require.Equal(t, ran, again.header.Get("Idempotent-Replayed"), toxic)
	}

	proxy.Stop() // nothing can be sent, so nothing was claimed
	refused := claimOnce(t, s.apis[0].url, c.ID, "refused", 1, "key of the refused")
	require.NoError(t, proxy.Start())
	requireRetryable(t, refused, "unavailable")
	s.checkBooks(c, tally, false)
}

func requireRetryable(t testing.TB, got reply, code string) {
	t.Helper()
	require.NoError(t, got.err)
	require.Equal(t, http.StatusServiceUnavailable, got.status, got.body)
	require.Equal(t, code, got.code(), got.body)
	require.NotEmpty(t, got.header.Get("Retry-After"))
}
