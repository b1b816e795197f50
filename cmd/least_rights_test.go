package cmd_test

import (
	"database/sql"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testkit/testenv"
)

func block(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/security.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)<!-- tested: " + name + " -->\n```\\w*\n(.*?)\n```").FindSubmatch(text)
	require.NotNil(t, found, name)
	return string(found[1])
}

// The rights in docs/security.md must be enough for every role, and
// all needed.
func TestLeastRightsAreEnough(t *testing.T) {
	t.Parallel()
	line := strings.Replace(block(t, "redis acl"), "PASSWORD", "s3cret", 1)
	s := newServers(t, line)
	dsn := grant(t, s)
	environ := []string{
		"DIBS_REDIS_URL=" + strings.Replace(s.redis.URL(), "redis://", "redis://dibs:s3cret@", 1), "DIBS_MYSQL_DSN=" + dsn, "DIBS_GROUPS=syncer",
	}
	serve := start(t, environ, "serve")
	serve.post("/campaigns", coupon)
	serve.claim("spring", "ada", "eve")
	serve.synced("spring", 2)
	var page struct{ Claims []struct{ ID string } }
	serve.get("/v1/users/ada/claims").into(t, &page)
	serve.post("/claims/"+page.Claims[0].ID+"/release", `{}`)
	serve.synced("spring", 1)
	serve.post("/campaigns", `{"id":"rain","kind":"packet","currency":"CNY"}`)
	serve.post("/campaigns/rain/packets", `{"count":3,"amount":300,"split":"even"}`, "Idempotency-Key: k")
	serve.claim("rain", "ada")
	serve.synced("rain", 1)
	serve.post("/campaigns", `{"id":"wide","kind":"coupon","total":8,"shards":2,"hold_for":"1h"}`)
	serve.claim("wide", "ada", "eve", "bob")
	serve.synced("wide", 3)
	serve.get("/v1/users/eve/claims?campaign_id=wide").into(t, &page)
	serve.post("/claims/"+page.Claims[0].ID+"/redeem", `{"order_id":"o1"}`)
	require.Equal(t, http.StatusOK, call(t, http.MethodPatch, serve.url+"/v1/campaigns/spring", `{"status":"paused"}`).status)
	requireOK(t, run(t, environ, "reconcile", "--repair"))
	requireOK(t, run(t, environ, "audit"))
	require.Equal(t, http.StatusOK, call(t, http.MethodPost, serve.url+"/v1/campaigns/spring/close", "").status)
	requireOK(t, run(t, environ, "archive", "--before", time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	log := serve.stop().stderr
	require.NotContains(t, log, "NOPERM")
	require.NotContains(t, log, "denied")

	own := openSQL(t, dsn)
	for _, denied := range []string{
		"UPDATE audit_log SET actor = 'eve'", "DELETE FROM audit_log", "TRUNCATE TABLE audit_log", "CREATE TABLE theirs (id INT)",
		"ALTER TABLE claims ADD COLUMN x INT", "DROP TABLE claims", "DELETE FROM goose_db_version", "CREATE USER eve",
	} {
		_, err := own.Exec(denied)
		var refused *mysql.MySQLError
		require.ErrorAs(t, err, &refused, denied)
		require.Contains(t, []uint16{1044, 1142, 1143, 1227}, refused.Number, "%s: %s", denied, refused)
	}

	options, err := redis.ParseURL(strings.TrimPrefix(environ[0], "DIBS_REDIS_URL="))
	require.NoError(t, err)
	dibs := redis.NewClient(options)
	t.Cleanup(func() { _ = dibs.Close() })
	for _, denied := range [][]any{
		{"FLUSHALL"}, {"KEYS", "*"}, {"CONFIG", "GET", "*"}, {"SHUTDOWN"}, {"ACL", "SETUSER", "eve"}, {"SCRIPT", "FLUSH"}, {"FUNCTION", "FLUSH"},
		{"SET", "other", "1"}, {"GET", "other"}, {"EVAL", "return redis.call('GET', KEYS[1])", "1", "other"}, {"PUBLISH", "c", "m"},
		{"REPLICAOF", "no", "one"},
	} {
		err := dibs.Do(t.Context(), denied...).Err()
		require.Error(t, err, denied)
		require.Regexp(t, "NOPERM|ACL failure", err.Error(), denied)
	}
}

// grant makes the users of docs/security.md, in its order, and returns
// the DSN of the roles' user.
func grant(t *testing.T, s *servers) string {
	t.Helper()
	at := strings.LastIndex(s.dsn, "@")
	rest := s.dsn[at:]
	name, _, _ := strings.Cut(rest[strings.LastIndex(rest, "/")+1:], "?")
	suffix := "_" + name[max(0, len(name)-12):]
	user := regexp.MustCompile(`'(dibs_\w+)'@`)
	apply := func(statements string) {
		for statement := range strings.SplitSeq(strings.TrimSpace(statements), "\n") {
			statement = strings.ReplaceAll(user.ReplaceAllString(statement, "'${1}"+suffix+"'@"), "dibs.", "`"+name+"`.")
			s.exec(strings.TrimSuffix(strings.Replace(statement, "PASSWORD", "s3cret", 1), ";"))
		}
	}
	for _, name := range []string{"dibs_migrate", "dibs_run"} {
		t.Cleanup(func() { _, _ = s.db.Exec("DROP USER IF EXISTS '" + name + suffix + "'@'%'") })
	}
	s.exec("DROP DATABASE `" + name + "`")
	create, accounts, _ := strings.Cut(block(t, "mysql grants"), "\n")
	require.Equal(t, "CREATE DATABASE dibs;", create)
	s.exec("CREATE DATABASE `" + name + "`")
	s.exec("USE `" + name + "`")
	apply(accounts)
	requireOK(t, run(t, []string{"DIBS_MYSQL_DSN=dibs_migrate" + suffix + ":s3cret" + rest}, "migrate"))
	grants := requireOK(t, run(t, nil, "grants", "--user", "dibs_run"))
	apply(grants)
	var missing []string
	rows, err := s.db.Query("SELECT table_name FROM information_schema.tables WHERE table_schema = ?", name)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var table string
		require.NoError(t, rows.Scan(&table))
		if table != "goose_lock" && // only the migration needs that one
			!strings.Contains(grants, " ON dibs."+table+" TO ") {
			missing = append(missing, table)
		}
	}
	require.NoError(t, rows.Err())
	require.Empty(t, missing, "tables for which dibs grants gives nothing")
	return "dibs_run" + suffix + ":s3cret" + rest
}

// A finance service credits, and reverses, by the rights of its account,
// in a database of its own and in Dibs'.
func TestRightsOfTheFinanceAccountAreEnough(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"DIBS_FINANCE_DSN", "DIBS_MYSQL_DSN"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			s, ids := rain(t)
			books := s.dsn
			if setting == "DIBS_FINANCE_DSN" {
				books = testenv.Database(t).DSN
				requireOK(t, run(t, s.with("DIBS_FINANCE_DSN="+books), "migrate"))
			}
			root := openSQL(t, books)
			dsn := s.with(setting+"="+account(t, root, books, "finance"), "DIBS_READ_AHEAD=true")
			finance := start(t, dsn, "finance")
			own := &servers{t: t, db: root}
			own.credited(2, 200)
			require.NoError(t, s.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: claims, Values: []any{
				"_watermill_message_uuid", "given-up", "metadata", "", "payload",
				`{"v":1,"type":"claims.given_up","id":"019c0000-0000-7000-8000-000000000001","campaign_id":"rain",` +
					`"at":"2026-11-21T12:00:00.000Z","ids":["` + ids["ada"] + `"]}`}}).Err())
			own.credited(3, 100)
			requireOK(t, run(t, dsn, "finance", "replay"))
			log := finance.stop().stderr
			require.NotContains(t, log, "denied")
		})
	}
}

// Waiting does not grant a right.
func TestARoleEndsForARightThatItLacks(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	requireOK(t, run(t, s.environ, "reconcile")) // Redis gets its id
	books := testenv.Database(t).DSN
	requireOK(t, run(t, s.with("DIBS_FINANCE_DSN="+books), "migrate"))
	dsn := account(t, openSQL(t, books), books, "reader")
	requireRefusal(t, run(t, s.with("DIBS_FINANCE_DSN="+dsn), "finance"), cmd.ExitFailed, "INSERT", "denied")
}

// account creates a user with the rights of an account, and returns its DSN.
func account(t *testing.T, root *sql.DB, dsn, name string) string {
	t.Helper()
	options, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	options.User, options.Passwd = name+options.DBName[max(0, len(options.DBName)-12):], "s3cret"
	exec := func(statement string) {
		_, err := root.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	exec("CREATE USER '" + options.User + "'@'%' IDENTIFIED BY 's3cret'")
	t.Cleanup(func() { _, _ = root.Exec("DROP USER '" + options.User + "'@'%'") })
	grants := requireOK(t, run(t, nil, "grants", "--user", options.User, "--database", options.DBName, "--account", name))
	for statement := range strings.Lines(grants) {
		exec(strings.TrimSuffix(statement, ";\n"))
	}
	return options.FormatDSN()
}

// Bad names and unknown accounts must be refused.
func TestGrantsAreForNamesAlone(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--user", "a'b"}, {"--user", "a", "--host", ""}, {"--user", "a", "--account", "root"}} {
		require.Equal(t, cmd.ExitUsage, run(t, nil, append([]string{"grants"}, args...)...).code, args)
	}
	require.Equal(t, "GRANT SELECT, SHOW VIEW ON `my-shop`.* TO 'eve'@'10.0.0.%';\n",
		requireOK(t, run(t, nil, "grants", "--user", "eve", "--host", "10.0.0.%", "--database", "my-shop", "--account", "reader")))
}
