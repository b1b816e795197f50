package e2e

import (
	"database/sql"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"dibs/internal/crowd"
	"dibs/internal/sqlstore"
	"dibs/internal/testenv"

	"github.com/stretchr/testify/require"
)

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// requireRefusal expects one line on stderr that says all of these words, and nothing on stdout.
func requireRefusal(t testing.TB, got outcome, code int, words ...string) {
	t.Helper()
	require.Equal(t, code, got.code, got.stderr)
	require.Empty(t, got.stdout)
	require.Equal(t, 1, strings.Count(got.stderr, "\n"), "one line, not %q", got.stderr)
	for _, word := range words {
		require.Contains(t, got.stderr, word)
	}
}

func TestDemoPrintsBooksThatAgree(t *testing.T) {
	t.Parallel()
	got := runDibs(t, nil, "demo", "--users", "1500", "--stock", "200", "--per-user", "2", "--connections", "50")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "the books agree")
	require.Regexp(t, `units taken +200 +200 +200`, got.stdout)
}

func TestDemoWorksOnRealServers(t *testing.T) {
	t.Parallel()
	s := newServers(t, wishes{})
	got := runDibs(t, map[string]string{"DIBS_REDIS_URL": s.redisURL, "DIBS_MYSQL_DSN": s.dsn}, "demo", "--users", "1000", "--stock", "100")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "the books agree")
}

func TestBadUsageIsOneLineThatNamesIt(t *testing.T) {
	t.Parallel()
	away := map[string]string{"DIBS_REDIS_URL": "redis://127.0.0.1:1", "DIBS_MYSQL_DSN": "root@tcp(127.0.0.1:1)/dibs"}
	for _, bad := range []struct {
		settings map[string]string
		args     string
		words    []string
	}{
		{args: "demo --users 0", words: []string{"--users"}},
		{args: "demo --stock many", words: []string{"--stock"}},
		{args: "demo --sotck 10", words: []string{"--sotck"}},
		{args: "demo now", words: []string{"now"}},
		{args: "dmeo", words: []string{"dmeo"}},
		{args: "api", words: []string{"DIBS_REDIS_URL"}},
		{args: "consumer", words: []string{"DIBS_REDIS_URL"}},
		{args: "syncer", words: []string{"DIBS_REDIS_URL"}},
		{args: "migrate", words: []string{"DIBS_MYSQL_DSN"}},
		{args: "serve --redis-url redis://127.0.0.1:1", words: []string{"DIBS_MYSQL_DSN", "DIBS_REDIS_URL"}},
		{args: "serve --http-addr 0.0.0.0:0", words: []string{"DIBS_HTTP_ADDR", "token"}},
		{args: "serve --http-addr :0", words: []string{"DIBS_HTTP_ADDR", "token"}},
		{args: "demo --http-addr 0.0.0.0:0", words: []string{"DIBS_HTTP_ADDR", "token"}},
		{args: "serve --flush-size 0", words: []string{"DIBS_FLUSH_SIZE"}},
		{args: "serve --flush-interval never", words: []string{"DIBS_FLUSH_INTERVAL"}},
		{args: "serve", settings: map[string]string{"DIBS_PARTITIONS": "0"}, words: []string{"DIBS_PARTITIONS"}},
		{args: "serve", settings: map[string]string{"DIBS_GROUPS": "finance"}, words: []string{"DIBS_GROUPS", "syncer"}},
		{args: "api --redis-url nonsense", settings: away, words: []string{"DIBS_REDIS_URL"}},
	} {
		t.Run(bad.args, func(t *testing.T) {
			t.Parallel()
			requireRefusal(t, runDibs(t, bad.settings, strings.Fields(bad.args)...), exitUsage, bad.words...)
		})
	}
}

func TestRolesRefuseServersThatCouldNotWork(t *testing.T) {
	t.Parallel()
	s := newServers(t, wishes{})
	good := map[string]string{"DIBS_REDIS_URL": s.redisURL, "DIBS_MYSQL_DSN": s.dsn, "DIBS_HTTP_ADDR": "127.0.0.1:0"}
	with := func(name, value string) map[string]string {
		settings := maps.Clone(good)
		settings[name] = value
		return settings
	}
	for _, role := range []string{"api", "consumer", "syncer", "serve"} {
		t.Run(role, func(t *testing.T) {
			old := with("DIBS_MYSQL_DSN", testenv.Database(t).DSN)
			requireRefusal(t, runDibs(t, old, role), exitFailed, "dibs migrate")

			evicting := with("DIBS_REDIS_URL", testenv.Redis(t, "maxmemory-policy allkeys-lru").URL())
			requireRefusal(t, runDibs(t, evicting, role), exitFailed, "allkeys-lru", "noeviction")
		})
	}
	requireRefusal(t, runDibs(t, with("DIBS_MYSQL_DSN", "nonsense"), "api"), exitUsage, "DIBS_MYSQL_DSN")
	requireRefusal(t, runDibs(t, with("DIBS_MYSQL_DSN", "nonsense"), "migrate"), exitUsage, "DIBS_MYSQL_DSN")
	for _, gone := range []struct{ role, name, value string }{
		{"api", "DIBS_REDIS_URL", "redis://127.0.0.1:1"},
		{"consumer", "DIBS_MYSQL_DSN", "root@tcp(127.0.0.1:1)/dibs"}, // the API has work without it
	} {
		got := runDibs(t, with(gone.name, gone.value), gone.role)
		require.Equal(t, exitFailed, got.code, got.stderr)
		require.Regexp(t, `(?m)^dibs: .*127\.0\.0\.1:1.*refused`, got.stderr)
	}

	api := newProcess(t, "api", good)
	openCampaign(t, api.url, campaign{Total: 1}) // fixes the number of partitions
	for _, role := range []string{"api", "consumer", "syncer", "serve"} {
		requireRefusal(t, runDibs(t, with("DIBS_PARTITIONS", "4"), role), exitUsage, "DIBS_PARTITIONS", "1", "4")
	}
	api.stop()
}

func TestMigrateBringsTheSchemaThatRolesWant(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"DIBS_MYSQL_DSN": testenv.Database(t).DSN}
	first := runDibs(t, settings, "migrate")
	require.Equal(t, exitOK, first.code, first.stderr)
	require.Contains(t, first.stdout, "applied")
	again := runDibs(t, settings, "migrate")
	require.Equal(t, exitOK, again.code, again.stderr)
	require.Contains(t, again.stdout, "nothing to do")

	settings["DIBS_REDIS_URL"] = testenv.Redis(t).URL()
	newProcess(t, "serve", settings).stop()
}

// TestServeHasEverythingAcceptedInItsFileWhenItEnds: the embedded Redis forgets, so a stop must drain it.
func TestServeHasEverythingAcceptedInItsFileWhenItEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve := newProcess(t, "serve", map[string]string{"DIBS_DATA_DIR": dir})
	users := testenv.Pick(2_000, 20_000)
	c := openCampaign(t, serve.url, campaign{Total: int64(users), PerUser: 2})
	rush := startRush(t, crowd.Plan{
		BaseURLs: []string{serve.url}, CampaignID: c.ID, Users: users, Connections: 50,
		Quantity: func(user int) int64 { return int64(user%2) + 1 },
		Once:     func(int) bool { return true }, // nobody is there to ask again
	})
	rush.reaches(users / 4)
	serve.stop()
	tally := rush.wait()
	require.Positive(t, tally.Refused["unreached"], "the stop came in mid-rush")

	file, err := sqlstore.Open(t.Context(), sqlstore.Config{Path: filepath.Join(dir, "dibs.db"), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { require.NoError(t, sqlstore.Close(file)) }()
	db, err := file.DB()
	require.NoError(t, err)
	requireFileBooks(t, db, c, tally)

	units := tally.Units
	goesOn := func(user string) {
		t.Helper()
		got := claimOnce(t, serve.url, c.ID, user, 1, user)
		require.Equal(t, http.StatusCreated, got.status, got.body)
		units++
		eventually(t, drainWithin, "the claim does not get its row", func() bool {
			stock, err := stockOf(t.Context(), serve.url, c.ID)
			return err == nil && stock.Synced == units && stock.Claimed == units && stock.Remaining == c.Total-units
		})
	}
	serve.restart()
	goesOn("after a stop")
	serve.kill9()
	serve.restart() // everything had its row, so nothing was lost
	goesOn("after a crash")
	replay := claimOnce(t, serve.url, c.ID, "after a stop", 1, "after a stop")
	require.Equal(t, "true", replay.header.Get("Idempotent-Replayed"), replay.body)
	serve.stop()
}

// With embedded servers nobody else could read the stream, so serve credits what packets gave, and what is left when a campaign
// closes; a stop drains that, too.
func TestServeCreditsPacketsByItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve := newProcess(t, "serve", map[string]string{"DIBS_DATA_DIR": dir})
	post := func(path string, body map[string]any) {
		t.Helper()
		key := ""
		if strings.HasSuffix(path, "/packets") {
			key = "once"
		}
		got := call(t, http.MethodPost, serve.url+"/v1/campaigns"+path, key, body)
		require.Equal(t, 2, got.status/100, got.body)
	}
	post("", map[string]any{"id": "rain", "kind": "packet", "currency": "CNY", "sender_id": "boss"})
	post("/rain/packets", map[string]any{"count": 5, "amount": 500, "split": "even"})
	for _, user := range []string{"ada", "bob"} {
		post("/rain/claims", map[string]any{"user_id": user})
	}
	post("/rain/close", nil)
	file, err := sqlstore.Open(t.Context(), sqlstore.Config{Path: filepath.Join(dir, "dibs.db"), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { require.NoError(t, sqlstore.Close(file)) }()
	balances := func() string {
		var all []string
		require.NoError(t, file.Raw("SELECT user_id || ' ' || amount || currency FROM accounts ORDER BY user_id").Scan(&all).Error)
		return strings.Join(all, ", ")
	}
	eventually(t, drainWithin, "the rest did not go back", func() bool { return balances() == "ada 100CNY, bob 100CNY, boss 300CNY" })
	post("", map[string]any{"id": "more", "kind": "packet", "currency": "CNY"})
	post("/more/packets", map[string]any{"count": 5, "amount": 500, "split": "even"})
	post("/more/claims", map[string]any{"user_id": "eve"})
	serve.stop()
	require.Equal(t, "ada 100CNY, bob 100CNY, boss 300CNY, eve 100CNY", balances())
}

// requireFileBooks holds the crowd's account against a database alone.
func requireFileBooks(t *testing.T, db *sql.DB, c campaign, tally crowd.Tally) {
	t.Helper()
	rows, err := readRows(t.Context(), db, c.ID)
	require.NoError(t, err)
	var r report
	b := books{campaign: c, tally: tally}
	b.crowdItself(&r)
	b.rowsAndCrowd(&r, rows)
	b.limits(&r, rows)
	b.sequence(&r, rows)
	var claimed, remaining, synced int64
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT claimed, remaining, synced_seq FROM campaigns WHERE id = ?", c.ID).
		Scan(&claimed, &remaining, &synced))
	r.equal("claimed, units of the rows", claimed, unitsOf(rows))
	r.equal("remaining, total less units of the rows", remaining, c.Total-unitsOf(rows))
	r.equal("synced_seq, rows", synced, int64(len(rows)))
	require.Empty(t, r, "%d rows", len(rows))
}
