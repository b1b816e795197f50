package cmd_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// block is a tested block of docs/security.md.
func block(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/security.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)<!-- tested: " + name + " -->\n```\\w*\n(.*?)\n```").FindSubmatch(text)
	require.NotNil(t, found, name)
	return string(found[1])
}

// What docs/security.md says is enough for every role, and no more than that.
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
	require.Equal(t, http.StatusOK, call(t, http.MethodPatch, serve.url+"/v1/campaigns/spring", `{"status":"paused"}`).status)
	requireOK(t, run(t, environ, "reconcile", "--repair"))
	requireOK(t, run(t, environ, "audit"))
	log := serve.stop().stderr
	require.NotContains(t, log, "NOPERM")
	require.NotContains(t, log, "denied")

	options, err := redis.ParseURL(strings.TrimPrefix(environ[0], "DIBS_REDIS_URL="))
	require.NoError(t, err)
	dibs := redis.NewClient(options)
	t.Cleanup(func() { _ = dibs.Close() })
	for _, denied := range [][]any{
		{"FLUSHALL"}, {"KEYS", "*"}, {"CONFIG", "GET", "*"}, {"SHUTDOWN"}, {"ACL", "SETUSER", "eve"}, {"SCRIPT", "FLUSH"},
		{"SET", "other", "1"}, {"GET", "other"}, {"EVAL", "return redis.call('GET', KEYS[1])", "1", "other"}, {"PUBLISH", "c", "m"}, {"REPLICAOF", "no", "one"},
	} {
		err := dibs.Do(t.Context(), denied...).Err()
		require.Error(t, err, denied)
		require.Regexp(t, "NOPERM|ACL failure", err.Error(), denied)
	}
}

// grant makes the users of docs/security.md and returns the DSN of the one that roles run as.
func grant(t *testing.T, s *servers) string {
	t.Helper()
	at := strings.LastIndex(s.dsn, "@")
	rest := s.dsn[at:]
	name, _, _ := strings.Cut(rest[strings.LastIndex(rest, "/")+1:], "?")
	suffix := name[max(0, len(name)-12):]
	for statement := range strings.SplitSeq(block(t, "mysql grants"), "\n") {
		user := regexp.MustCompile(`TO '(\w+)'@`).FindStringSubmatch(statement)[1]
		own := user + "_" + suffix
		s.exec("CREATE USER '" + own + "'@'%' IDENTIFIED BY 's3cret'")
		t.Cleanup(func() { _, _ = s.db.Exec("DROP USER '" + own + "'@'%'") })
		statement = strings.ReplaceAll(strings.Replace(statement, "'"+user+"'", "'"+own+"'", 1), "dibs.*", "`"+name+"`.*")
		s.exec(strings.TrimSuffix(statement, ";"))
	}
	migrate := "DIBS_MYSQL_DSN=dibs_migrate_" + suffix + ":s3cret" + rest
	s.exec("DROP TABLE goose_db_version") // all of them run again: each is to be safe to
	requireOK(t, run(t, []string{migrate}, "migrate"))
	return "dibs_run_" + suffix + ":s3cret" + rest
}
