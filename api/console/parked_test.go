package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/servetest"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models/stored"
)

// They must be listed; each group replays its own, and one can be discarded.
func TestParkedMessagesOfEveryGroup(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	db := testenv.Database(t)
	servers := []string{"DIBS_REDIS_URL=" + server.URL(), "DIBS_MYSQL_DSN=" + db.DSN, "DIBS_GROUPS=syncer,finance,webhooks", "PATH=" + os.Getenv("PATH")}
	servetest.Migrate(t, servers...)
	rdb := server.Client()
	const event = `{"v":1,"type":"claim.accepted","id":"%s","campaign_id":"spring","user_id":"ada","quantity":1,"seq":1,"at":"2026-01-01T00:00:00.000Z"}`
	park := func(key, id, payload string) string {
		entry, err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []any{
			"_dibs_id", "1-1", "_dibs_reason", "the reason of " + id, "_dibs_tries", "1", "payload", payload,
		}}).Result()
		require.NoError(t, err)
		return "p0/" + entry
	}
	replayed := park(lua.ParkedKey(0, "finance"), "one", fmt.Sprintf(event, "one"))
	discarded := park(lua.ParkedKey(0, "finance"), "two", fmt.Sprintf(event, "two"))
	var isAway atomic.Bool
	isAway.Store(true)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if isAway.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(hook.Close)
	store := syncertest.OpenStore(t, sqlstore.Config{DSN: db.DSN})
	require.NoError(t, store.Exec("INSERT INTO webhook_events (endpoint, campaign_id, no, event_id, type, at, payload, created_at, parked_at, reason)"+
		" VALUES ('shop', 'spring', 1, 'four', 'claim.accepted', NOW(), '{}', NOW(), NOW(), 'it answered 500')").Error)
	require.NoError(t, store.Create(&stored.ParkedEvent{ID: "five", LotID: "spring#2", Payload: []byte("{}"), ParkedAt: time.Now()}).Error)
	file := filepath.Join(t.TempDir(), "endpoints.json")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{"endpoints":[{"name":"shop","url":%q,`+
		`"secrets":["whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="],"events":["claim.accepted"]}]}`, hook.URL), 0o600))

	s := serve(t, servers...)
	p := s.person()
	p.signIn(admin)
	listed := func() string { return p.get("/console/trouble").text }
	for _, want := range []string{"the reason of one", "the reason of two", "Group finance", "it answered 500", "shop/four", `<a href="/console/campaigns/spring">spring#2</a>`} {
		require.Contains(t, listed(), want)
	}
	require.Contains(t, p.get("/console/processes").text, "last received something", "not when it last asked, which Redis 7.0 does not know")
	require.Contains(t, p.get("/console/parked/finance/discard?id="+discarded).text, "is deleted for good")
	got := p.act("/console/parked/finance/discard?id=" + discarded)
	require.Equal(t, "/console/trouble?done=discard", got.header.Get("Location"), got.text)
	require.NotContains(t, listed(), "the reason of two")
	form := p.form("/console/parked/webhooks/discard?id=shop/four")
	for _, id := range []string{"", "shop", "shop/", "/", "shop/five"} {
		form.Set("id", id)
		require.Equal(t, 404, p.post("/console/parked/webhooks/discard", form).status, "no message is called %q", id)
		require.Contains(t, listed(), "shop/four")
	}
	for _, path := range []string{"finance/replay?id=" + replayed, "webhooks/replay?id=shop/four"} {
		require.Equal(t, 303, p.act("/console/parked/"+path).status, path)
	}
	require.Contains(t, listed(), "asked for", "finance does not run")
	run(t, "finance", servers)
	run(t, "webhooks", append(slices.Clone(servers), "DIBS_WEBHOOKS_FILE="+file))
	require.Eventually(t, func() bool { return !strings.Contains(listed(), "the reason of one") }, within, 50*time.Millisecond)
	require.Eventually(t, func() bool { return strings.Contains(listed(), "the endpoint does not take it") }, within, 50*time.Millisecond)
	isAway.Store(false)
	require.Equal(t, 303, p.act("/console/parked/webhooks/replay").status)
	require.Eventually(t, func() bool { return !strings.Contains(listed(), "shop/four") }, within, 50*time.Millisecond)
	log := s.api("GET", "/v1/audit", "")
	require.Contains(t, log, "parked.replayed")
	require.Contains(t, log, `"id":"`+discarded)
	require.Equal(t, 404, p.get("/console/parked/finance/explode?id=1").status)
}
