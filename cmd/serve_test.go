package cmd_test

import (
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/sqlstore"
	"dibs/internal/testkit/machine"
)

const coupon = `{"id":"spring","kind":"coupon","total":2,"per_user":1}`

// Without settings, claims must reach the database at once, and a stop
// must be no failure.
func TestServeIsAWholeDibs(t *testing.T) {
	t.Parallel()
	serve := start(t, nil, "serve")
	require.Equal(t, http.StatusOK, call(t, http.MethodGet, serve.url+"/readyz", "").status)
	require.Equal(t, http.StatusCreated, serve.post("/campaigns", coupon).status)
	require.Equal(t, http.StatusOK, serve.post("/campaigns", coupon).status, "the same again")
	first := serve.post("/campaigns/spring/claims", `{"user_id":"ada"}`, "Idempotency-Key: k")
	again := serve.post("/campaigns/spring/claims", `{"user_id":"ada"}`, "Idempotency-Key: k")
	require.Equal(t, first.body, again.body)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, "user_limit", call(t, http.MethodPost, serve.url+"/v1/campaigns/spring/claims", `{"user_id":"ada"}`).code())
	serve.synced("spring", 1)
	require.Contains(t, serve.get("/metrics").body, "dibs_script_seconds")
	require.Contains(t, serve.get("/openapi.json").body, `"openapi":"3.1`)
	require.Contains(t, serve.problems.String(), "url="+serve.url+"/console\n", "it names the page for browsers")
	require.Contains(t, serve.problems.String(), "SQLite", "it says plainly that its servers are embedded")
	got := serve.stop()
	require.Equal(t, cmd.ExitOK, got.code, got.stderr)
	require.Empty(t, got.stdout)
}

// Spans that no collector takes are given up at the deadline of the stop.
func TestACollectorThatHangsHoldsUpNoStop(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, silent.Close()) }()
	serve := start(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + silent.Addr().String(), "DIBS_SHUTDOWN_TIMEOUT=1s"}, "serve")
	serve.post("/campaigns", coupon)
	serve.post("/campaigns/spring/claims", `{"user_id":"ada"}`, "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	serve.synced("spring", 1)
	started := time.Now()
	got := serve.stop()
	require.Equal(t, cmd.ExitOK, got.code, got.stderr)
	require.Less(t, time.Since(started), 2*time.Second)
}

// Each would have a Redis of its own, and sell the same units.
func TestASecondServeOfAFolderIsRefused(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	environ := []string{"DIBS_DATA_DIR=" + folder}
	serve := start(t, environ, "serve")
	serve.post("/campaigns", coupon)
	second := []string{"--http-addr", "127.0.0.1:0"}
	for _, command := range []string{"serve", "demo"} {
		requireRefusal(t, run(t, environ, append([]string{command}, second...)...), cmd.ExitUsage, "DIBS_DATA_DIR", folder)
	}
	requireOK(t, run(t, environ, "audit"))
	serve.claim("spring", "ada")
	serve.synced("spring", 1)
	require.Equal(t, cmd.ExitOK, serve.stop().code)
	require.Equal(t, cmd.ExitOK, start(t, environ, "serve").stop().code)
}

// Parked claims in a folder must not prevent a start: other campaigns
// are served. One campaign has a claim with another's id, one has more
// parked events than a load reads.
func TestServeWithParkedClaimsInItsFolderServesTheOthers(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "new", "data")
	environ := []string{"DIBS_DATA_DIR=" + folder}
	serve := start(t, environ, "serve")
	info, err := os.Stat(folder)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "claims are no one else's to read")
	for _, id := range []string{"spring", "summer", "autumn"} {
		serve.post("/campaigns", `{"id":"`+id+`","kind":"coupon","total":2}`)
		serve.claim(id, "ada")
		serve.synced(id, 1)
	}
	serve.claim("spring", "bob")
	serve.synced("spring", 2)
	require.Equal(t, cmd.ExitOK, serve.stop().code)
	db, err := sqlstore.Open(t.Context(), sqlstore.Config{Path: filepath.Join(folder, "dibs.db"), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	var adas string
	require.NoError(t, db.Raw("SELECT id FROM claims WHERE campaign_id = 'spring' AND user_id = 'ada'").Scan(&adas).Error)
	payload := `{"v":1,"type":"claim.accepted","id":"` + adas + `","campaign_id":"spring","user_id":"eve","quantity":1,` +
		`"seq":1,"epoch":1,"at":"2027-03-14T15:09:26.535Z"}`
	require.NoError(t, db.Exec("INSERT INTO parked_events (id, campaign_id, user_id, reason, payload, parked_at)"+
		" VALUES (?, 'spring', 'eve', 'another has its id', ?, CURRENT_TIMESTAMP)", adas, payload).Error)
	require.NoError(t, db.Exec("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10001)"+
		" INSERT INTO parked_events (id, campaign_id, reason, payload, parked_at)"+
		" SELECT 'x' || i, 'autumn', 'broken', '{', CURRENT_TIMESTAMP FROM n").Error)
	require.NoError(t, sqlstore.Close(db))

	serve = start(t, environ, "serve")
	serve.claim("summer", "bob")
	claim := func(campaign string) string {
		return call(t, http.MethodPost, serve.url+"/v1/campaigns/"+campaign+"/claims", `{"user_id":"bob"}`).code()
	}
	require.Equal(t, "sold_out", claim("spring"))
	inTheWay := regexp.MustCompile(`parked claims are in the way: autumn has more than 10000; .dibs reconcile --repair. writes`)
	require.Eventually(t, func() bool {
		require.Equal(t, "unavailable", claim("autumn"))
		return inTheWay.MatchString(serve.problems.String())
	}, time.Minute, 100*time.Millisecond)
	require.Equal(t, cmd.ExitOK, serve.stop().code)
}

func TestServeWithoutAFolderLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	serve := start(t, nil, "serve")
	made := func() []string {
		all, err := filepath.Glob(filepath.Join(os.TempDir(), "dibs-*"))
		require.NoError(t, err)
		return slices.DeleteFunc(all, func(folder string) bool { return strings.Contains(folder, "test") }) // testenv's
	}
	require.NotEmpty(t, made(), "while it runs")
	require.Equal(t, cmd.ExitOK, serve.stop().code)
	require.Empty(t, made())
}

func TestServeFailsOfWhatItCannotUse(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	requireRefusal(t, run(t, []string{"DIBS_LOG_LEVEL=error"}, "serve", "--http-addr", taken.Addr().String()), cmd.ExitFailed, "in use")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	addr := "--http-addr=" + machine.Addr(t)
	requireRefusal(t, run(t, []string{"DIBS_DATA_DIR=" + file}, "serve", addr), cmd.ExitUsage, "DIBS_DATA_DIR", file)
	requireRefusal(t, run(t, []string{"DIBS_DURABILITY=fsync"}, "serve", addr), cmd.ExitUsage, "DIBS_DURABILITY", "embedded")
}

func TestWithoutTokensServeListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"serve", "demo", "api"} {
		requireRefusal(t, run(t, noOne, command, "--http-addr", ":0"), cmd.ExitUsage, "DIBS_HTTP_ADDR", "token")
	}
	for _, command := range []string{"consumer", "syncer", "finance"} {
		requireRefusal(t, run(t, noOne, command, "--metrics-addr", "0.0.0.0:0"), cmd.ExitUsage, "DIBS_METRICS_ADDR", "token")
	}
}
