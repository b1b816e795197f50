package cmd_test

import (
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/sqlstore"
	"dibs/internal/testenv"
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
	claims := serve.url + "/v1/campaigns/spring/claims"
	require.Equal(t, "user_limit", call(t, http.MethodPost, claims, `{"user_id":"ada"}`).code())
	serve.claim("spring", "bob")
	require.Equal(t, "sold_out", call(t, http.MethodPost, claims, `{"user_id":"eve"}`).code())
	serve.synced("spring", 2)
	require.Contains(t, serve.get("/metrics").body, "dibs_script_seconds")
	require.Contains(t, serve.get("/openapi.json").body, `"openapi":"3.1`)
	require.Contains(t, serve.problems.String(), "url="+serve.url+"/console\n", "it names the page for browsers")
	require.Contains(t, serve.problems.String(), "SQLite", "it says plainly that its servers are embedded")
	got := serve.stop()
	require.Equal(t, cmd.ExitOK, got.code, got.stderr)
	require.Empty(t, got.stdout)
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
	for _, statement := range []string{
		"INSERT INTO parked_events (id, campaign_id, user_id, reason, payload, parked_at)" +
			" VALUES ('" + adas + "', 'spring', 'eve', 'another has its id', '" + payload + "', CURRENT_TIMESTAMP)",
		"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10001)" +
			" INSERT INTO parked_events (id, campaign_id, reason, payload, parked_at) SELECT 'x' || i, 'autumn', 'broken', '{', CURRENT_TIMESTAMP FROM n",
	} {
		require.NoError(t, db.Exec(statement).Error)
	}
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
	serve.post("/campaigns", coupon)
	made, err := filepath.Glob(filepath.Join(os.TempDir(), "dibs-*"))
	require.NoError(t, err)
	require.NotEmpty(t, made, "while it runs")
	require.Equal(t, cmd.ExitOK, serve.stop().code)
	made, err = filepath.Glob(filepath.Join(os.TempDir(), "dibs-*"))
	require.NoError(t, err)
	require.NotContains(t, strings.Join(made, " "), "dibs-lab")
	for _, folder := range made {
		require.Contains(t, folder, "test", "a folder of testenv's")
	}
}

func TestAFolderThatCannotBeIsTheSettingsFault(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	requireRefusal(t, run(t, []string{"DIBS_DATA_DIR=" + file}, "serve", "--http-addr", testenv.Addr(t)), cmd.ExitUsage, "DIBS_DATA_DIR", file)
}

func TestATakenAddressFailsAndIsNoMistakeInTheSettings(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	got := run(t, nil, "serve", "--http-addr", taken.Addr().String())
	require.Equal(t, cmd.ExitFailed, got.code, got.stderr)
	require.Contains(t, got.stderr, "in use")
}

func TestWithoutTokensServeListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"serve", "demo", "api"} {
		for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
			requireRefusal(t, run(t, noOne, command, "--http-addr", addr), cmd.ExitUsage, "DIBS_HTTP_ADDR", "token")
		}
	}
	for _, command := range []string{"consumer", "syncer", "finance"} {
		requireRefusal(t, run(t, noOne, command, "--metrics-addr", "0.0.0.0:0"), cmd.ExitUsage, "DIBS_METRICS_ADDR", "token")
	}
}

func TestOneUserMayAskOnlySoOften(t *testing.T) {
	t.Parallel()
	serve := start(t, []string{"DIBS_USER_RATE=1"}, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":50}`)
	limited := 0
	for range 10 {
		got := call(t, http.MethodPost, serve.url+"/v1/campaigns/spring/claims", `{"user_id":"ada"}`)
		if got.status == http.StatusTooManyRequests {
			require.Equal(t, "rate_limited", got.code())
			limited++
		}
	}
	require.Positive(t, limited)
	serve.claim("spring", "bob") // limits are per user
}

func TestTheEmbeddedRedisHasNoDisk(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"serve", "demo"} {
		got := run(t, []string{"DIBS_DURABILITY=fsync"}, command, "--http-addr", testenv.Addr(t))
		requireRefusal(t, got, cmd.ExitUsage, "DIBS_DURABILITY", "embedded")
	}
}
