package cmd_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/sleep"
)

// hook is an endpoint that records the seqs of the claims that it accepts.
type hook struct {
	*httptest.Server

	takes time.Duration // delay of its answer

	down atomic.Bool
	mu   sync.Mutex
	ids  map[string]bool
	seqs []int64
}

func newHook(t *testing.T) (*hook, string) {
	t.Helper()
	h := &hook{ids: map[string]bool{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Data struct {
				ID  string `json:"id"`
				Seq int64  `json:"seq"`
			} `json:"data"`
		}
		_ = sleep.For(r.Context(), h.takes)
		text, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(text, &body) != nil || h.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.ids[body.Data.ID] {
			h.seqs = append(h.seqs, body.Data.Seq)
		}
		h.ids[body.Data.ID] = true
	}))
	t.Cleanup(h.Close)
	file := filepath.Join(t.TempDir(), "endpoints.json")
	text := fmt.Sprintf(`{"endpoints":[{"name":"shop","url":%q,"secrets":["whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="],"events":["claim.accepted"]}]}`, h.URL)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return h, "DIBS_WEBHOOKS_FILE=" + file
}

// took reports whether exactly the claims from 1 to n were accepted,
// in order.
func (h *hook) took(n int) func() bool {
	return func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for i, seq := range h.seqs {
			if seq != int64(i+1) {
				return false
			}
		}
		return len(h.seqs) == n
	}
}

// Redis loses the lease of the delivering process, as when its clock jumps
// ahead. The next holder must wait until the first has noticed, so that no
// event overtakes another. The first then stands by, and may take over again.
// Claims made while the receiver or all processes were down must come in order.
func TestWebhooksAreDeliveredInOrderByOneProcessAtATime(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	h, file := newHook(t)
	h.takes = 10 * time.Millisecond
	serve := start(t, s.with("DIBS_GROUPS=syncer"), "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":10000}`)
	one := start(t, s.with(file, "DIBS_NAME=one"), "webhooks")
	claimed := 0
	claim := func(n int) {
		for range n {
			serve.claim("spring", fmt.Sprint("u", claimed))
			claimed++
		}
	}
	claim(5)
	eventually(t, "delivered", h.took(5))
	require.Contains(t, one.get("/metrics").body, `dibs_webhook_deliveries_total{endpoint="shop",result="ok"} 5`)
	two := start(t, s.with(file, "DIBS_NAME=two"), "webhooks")
	for rounds := 1; rounds <= 2; rounds++ {
		const lease = "dibs:consumer:webhooks:webhooks"
		holder, err := s.rdb.Get(t.Context(), lease).Result()
		require.NoError(t, err)
		eventually(t, "one of them stands by again", func() bool {
			// it may notice first and take the lease again
			if s.rdb.Get(t.Context(), lease).Val() == holder {
				require.NoError(t, s.rdb.Del(t.Context(), lease).Err())
			}
			claim(10) // faster than they are delivered
			const message = "another process has taken over"
			return strings.Count(one.problems.String()+two.problems.String(), message) == rounds
		})
		eventually(t, "delivered in order", h.took(claimed))
	}

	h.down.Store(true)
	claim(20)
	eventually(t, "stored", func() bool { return s.number("SELECT COUNT(*) FROM webhook_events") > 0 })
	require.Equal(t, cmd.ExitOK, one.stop().code)
	require.Equal(t, cmd.ExitOK, two.stop().code)
	claim(20)
	h.down.Store(false)
	third := start(t, s.with(file), "webhooks")
	eventually(t, "delivered", h.took(claimed))
	require.Equal(t, cmd.ExitOK, third.stop().code)
	require.EqualValues(t, 1, s.number("SELECT COUNT(*) FROM consumer_groups WHERE name = 'webhooks'"), "it registered itself")
	eventually(t, "nothing waits", func() bool { return s.number("SELECT COUNT(*) FROM webhook_events") == 0 })
}

func TestWebhooksParkedAreListedReplayedAndDiscarded(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	h, file := newHook(t)
	for _, id := range []string{"a", "b"} {
		s.exec(fmt.Sprintf("INSERT INTO webhook_events (endpoint, campaign_id, no, event_id, type, at, payload, created_at, parked_at, reason)"+
			" VALUES ('shop', 'spring-%s', 1, 'e-%s', 'claim.accepted', NOW(), '{\"id\":\"e-%s\",\"seq\":1}', NOW(), NOW(), 'it answered 500')", id, id, id))
	}
	environ := s.with(file)
	require.Contains(t, requireOK(t, run(t, environ, "webhooks", "parked")), "it answered 500")
	require.Len(t, strings.Split(strings.TrimSpace(requireOK(t, run(t, environ, "webhooks", "parked", "-o", "json", "--endpoint", "shop"))), "\n"), 2)
	requireRefusal(t, run(t, environ, "webhooks", "discard"), cmd.ExitUsage, "--id")
	requireRefusal(t, run(t, environ, "webhooks", "discard", "--endpoint", "shop", "--id", ""), cmd.ExitUsage, "--id is empty")
	require.Contains(t, requireOK(t, run(t, environ, "webhooks", "discard", "--id", "e-a")), `"event_id":"e-a"`)
	for _, verb := range []string{"discard", "replay"} {
		requireRefusal(t, run(t, environ, "webhooks", verb, "--id", "e-a"), cmd.ExitFailed, "no such parked event: e-a")
	}
	requireOK(t, run(t, environ, "webhooks", "discard", "--endpoint", "shoop"))
	require.EqualValues(t, 1, s.number("SELECT COUNT(*) FROM audit_log WHERE action LIKE 'parked.%'"), "of what was there")
	h.down.Store(true)
	got := run(t, environ, "webhooks", "replay")
	require.Equal(t, cmd.ExitFailed, got.code)
	h.down.Store(false)
	require.Contains(t, requireOK(t, run(t, environ, "webhooks", "replay")), "delivered 1, still parked 0")
	require.Zero(t, s.number("SELECT COUNT(*) FROM webhook_events"))
	noted := requireOK(t, run(t, environ, "audit", "-o", "json"))
	require.Contains(t, noted, `"action":"parked.replayed"`)
	require.Regexp(t, `"action":"parked.discarded".*"id":"e-a"`, noted)
}

func TestWebhooksTest(t *testing.T) {
	t.Parallel()
	h, file := newHook(t)
	environ := []string{file}
	require.Contains(t, requireOK(t, run(t, environ, "webhooks", "test", "shop")), "the endpoint shop took the message")
	requireRefusal(t, run(t, environ, "webhooks", "test", "nobody"), cmd.ExitUsage, "it has [shop]")
	h.down.Store(true)
	requireRefusal(t, run(t, environ, "webhooks", "test", "shop"), cmd.ExitFailed, "answered 503")
	require.NoError(t, os.WriteFile(strings.TrimPrefix(file, "DIBS_WEBHOOKS_FILE="), []byte(`{"endpoints":[{"name":"shop","url":"http://example.com"}]}`), 0o600))
	requireRefusal(t, run(t, append(environ, noOne...), "webhooks"), cmd.ExitUsage, "DIBS_WEBHOOKS_FILE", "endpoint shop: url")
}
