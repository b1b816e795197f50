package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
)

// durable are redis.conf lines that put each write on disk before its reply.
var durable = []string{"appendonly yes", "appendfsync always"}

// One key, sent concurrently and after each part was restarted,
// must always get the first reply.
func TestReplayIsTheFirstAnswerAgainWhateverRestarts(t *testing.T) {
	t.Parallel()
	s := newSystem(t, setup{apis: 2, redisConf: durable, ownSQL: true})
	c := openCampaign(t, s.apis[0].url, campaign{Total: 100, PerUser: 2})
	first, tally := parallelReplays(t, s, c)

	for _, part := range []struct {
		name    string
		restart func()
	}{
		{"api", func() { s.apis[0].kill9(); s.apis[0].restart() }},
		{"consumer", func() { s.consumers[0].kill9(); s.consumers[0].restart() }},
		{"syncer", func() { s.syncers[0].kill9(); s.syncers[0].restart() }},
		{"redis", func() { s.redis.Kill(); s.redis.Start() }},
		{"sql", func() { s.sql.Kill(); s.sql.Start() }},
	} {
		part.restart()
		for _, url := range s.urls() {
			again := claimUntilAnswered(t, url, c.ID, "replayer", 2, "one key")
			require.Equal(t, http.StatusCreated, again.status, again.body)
			require.Equal(t, first, again.body, part.name)
			require.Equal(t, "true", again.header.Get("Idempotent-Replayed"), part.name)
		}
		book1(t, &tally, claimUntilAnswered(t, s.apis[0].url, c.ID, "after "+part.name, 1, "key after "+part.name))
	}
	other := claimUntilAnswered(t, s.apis[1].url, c.ID, "replayer", 1, "one key")
	require.Equal(t, "idempotency_mismatch", other.code(), other.body)
	s.checkBooks(c, tally, false)
}

// parallelReplays sends one claim concurrently to two API
// processes. All replies but one must be marked as replays.
func parallelReplays(t *testing.T, s *system, c campaign) (first string, tally crowd.Tally) {
	t.Helper()
	const times = 60
	answers := make([]reply, times)
	var wg sync.WaitGroup
	for i := range times {
		wg.Go(func() { answers[i] = claimOnce(t, s.apis[i%2].url, c.ID, "replayer", 2, "one key") })
	}
	wg.Wait()
	replayed := 0
	for _, a := range answers {
		require.NoError(t, a.err)
		require.Equal(t, http.StatusCreated, a.status, a.body)
		require.Equal(t, answers[0].body, a.body)
		if a.header.Get("Idempotent-Replayed") == "true" {
			replayed++
		}
	}
	require.Equal(t, times-1, replayed)
	tally = merged()
	book1(t, &tally, answers[0])
	return answers[0].body, tally
}

// behindProxy is a system whose API reaches Redis through a
// proxy that can cut connections.
func behindProxy(t *testing.T) (*system, *toxiproxy.Proxy) {
	t.Helper()
	var proxy *toxiproxy.Proxy
	s := newSystem(t, setup{apiRedis: func(url string) string {
		proxy = testenv.Proxy(t, strings.TrimSuffix(strings.TrimPrefix(url, "redis://"), "/0"))
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
