package cmd_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/testenv"
)

func schemaFiles(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("../internal/migrations/mysql")
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.NotEmpty(t, names)
	return names
}

// unmigrated makes a database with only the migrations' own table. A
// version makes it that of an old development version.
func unmigrated(t *testing.T, version int64) string {
	t.Helper()
	dsn := testenv.Database(t).DSN
	db := openSQL(t, dsn)
	for _, statement := range []string{
		"CREATE TABLE goose_db_version (id SERIAL PRIMARY KEY, version_id BIGINT NOT NULL, is_applied BOOLEAN NOT NULL, tstamp TIMESTAMP DEFAULT NOW())",
		fmt.Sprintf("INSERT INTO goose_db_version (version_id, is_applied) VALUES (%d, 1)", version),
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	return dsn
}

func TestMigrateAppliesWhatIsMissingAndNamesIt(t *testing.T) {
	t.Parallel()
	files := schemaFiles(t)
	applied := func(out string) (names []string) {
		for _, found := range regexp.MustCompile(`(?m)^applied +(\S+) +DIBS_MYSQL_DSN$`).FindAllStringSubmatch(out, -1) {
			names = append(names, found[1])
		}
		return names
	}
	empty := []string{"DIBS_MYSQL_DSN=" + testenv.Database(t).DSN}
	var pending strings.Builder
	for _, file := range files {
		_, _ = fmt.Fprintf(&pending, `{"state":"pending","migration":%q,"database":"DIBS_MYSQL_DSN"}`+"\n", file)
	}
	require.Equal(t, pending.String(), requireOK(t, run(t, empty, "migrate", "--status", "-o", "json")))
	require.Equal(t, files, applied(requireOK(t, run(t, empty, "migrate"))), "asking changed nothing")
	require.Equal(t, files, applied(requireOK(t, run(t, empty, "migrate", "--status"))))
	again := requireOK(t, run(t, empty, "migrate"))
	require.Empty(t, applied(again))
	require.Equal(t, 1, strings.Count(again, "\n"), "and says that there was nothing to do")
	old := []string{"DIBS_MYSQL_DSN=" + unmigrated(t, 20)}
	requireRefusal(t, run(t, old, "migrate"), cmd.ExitFailed, "version 20", "create an empty database")
}

// Each role must name both versions and the command. After the
// migration it must work with the old data.
func TestAnOldSchemaIsRefusedUntilItIsMigrated(t *testing.T) {
	t.Parallel()
	dsn := unmigrated(t, 0)
	redis := testenv.Redis(t)
	environ := []string{"DIBS_REDIS_URL=" + redis.URL(), "DIBS_MYSQL_DSN=" + dsn}
	for _, role := range []string{"serve", "api", "consumer", "syncer", "finance", "reconcile", "demo", "finance parked", "finance replay", "audit"} {
		args := append(strings.Fields(role), "--http-addr="+machine.Addr(t))
		requireRefusal(t, run(t, environ, args...), cmd.ExitFailed, "version 0", "dibs migrate")
	}
	keys, err := redis.Client().Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Empty(t, keys, "a refusal has touched nothing")
	requireOK(t, run(t, environ, "migrate"))
	serve := start(t, environ, "serve")
	serve.post("/campaigns", coupon)
	serve.claim("spring", "ada")
	serve.synced("spring", 1)
	require.Equal(t, cmd.ExitOK, serve.stop().code)
}

// A long transaction, such as a dump's, delays a schema change. Later
// statements must wait only briefly.
func TestMigrateBehindAnOpenTransactionLetsOthersThrough(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t).DSN
	environ := []string{"DIBS_MYSQL_DSN=" + dsn}
	requireOK(t, run(t, environ, "migrate"))
	db := openSQL(t, dsn)
	// makes all migrations pending
	_, err := db.ExecContext(t.Context(), "DELETE FROM goose_db_version WHERE version_id > 0")
	require.NoError(t, err)
	open, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = open.Rollback() }()
	const count = "SELECT COUNT(*) FROM campaigns"
	var n int
	require.NoError(t, open.QueryRowContext(t.Context(), count).Scan(&n))
	var got ended
	var migrating sync.WaitGroup
	migrating.Go(func() { got = run(t, environ, "migrate") })
	waiting := func() (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist"+
			" WHERE db = DATABASE() AND state LIKE 'Waiting for table metadata lock%'").Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return waiting() == 1 }, time.Minute, 50*time.Millisecond, "the migration waits")
	started := time.Now()
	require.NoError(t, db.QueryRowContext(t.Context(), count).Scan(&n))
	require.Less(t, time.Since(started), 9*time.Second, "one who comes later waits for five seconds and not for the transaction")
	require.NoError(t, open.Commit())
	migrating.Wait()
	require.Equal(t, len(schemaFiles(t)), strings.Count(requireOK(t, got), "applied "))
	require.Contains(t, got.stderr, "a migration waits for a transaction that uses a table")
}

func TestMigrateSeesToTheFinanceServicesDatabaseToo(t *testing.T) {
	t.Parallel()
	dibs, books := testenv.Database(t).DSN, testenv.Database(t).DSN
	out := requireOK(t, run(t, []string{"DIBS_MYSQL_DSN=" + dibs, "DIBS_FINANCE_DSN=" + books}, "migrate"))
	require.Equal(t, 2*len(schemaFiles(t)), strings.Count(out, "applied "))
	out = requireOK(t, run(t, []string{"DIBS_MYSQL_DSN=" + dibs, "DIBS_FINANCE_DSN=" + dibs}, "migrate"))
	require.Equal(t, 1, strings.Count(out, "\n"), "one database is asked once")
	requireRefusal(t, run(t, noOne, "migrate"), cmd.ExitFailed, "127.0.0.1:1")
}
