package cmd_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/testenv"
)

// Logs at the lowest level must contain no secret, through accepted
// and refused requests, sign-ins, and unreachable servers.
func TestNoLogHoldsASecret(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t, "user dibs on >hunter2-redis ~* &* +@all")
	url := strings.Replace(redis.URL(), "redis://", "redis://dibs:hunter2-redis@", 1)
	settings := []string{
		"DIBS_REDIS_URL=" + url, "DIBS_MYSQL_DSN=" + testenv.Database(t).DSN, "DIBS_ADMIN_TOKEN=hunter2-admin-0123456789",
		"DIBS_STOREFRONT_TOKEN=hunter2-store-0123456789", "DIBS_LOG_LEVEL=debug", "DIBS_LOG_FORMAT=json", "DIBS_ACCESS_LOG=1",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://me:hunter2@" + machine.Addr(t), "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20hunter2",
	}
	require.Equal(t, cmd.ExitOK, run(t, settings, "migrate").code)
	serve := start(t, settings, "serve")
	admin := "Authorization: Bearer hunter2-admin-0123456789"
	traced := "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	serve.post("/campaigns", coupon, admin)
	serve.post("/campaigns/spring/claims", `{"user_id":"ada"}`, "Authorization: Bearer hunter2-store-0123456789", traced)
	for _, wrong := range []string{
		"Bearer hunter2-nobody-0123456789", "Basic aHVudGVyMjpodW50ZXIy", "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJodW50ZXIyIn0.aHVudGVyMg",
	} {
		require.Equal(t, http.StatusUnauthorized, call(t, http.MethodGet, serve.url+"/v1/campaigns", "", "Authorization: "+wrong).status)
	}
	for _, token := range []string{"hunter2-admin-0123456789", "hunter2-wrong-0123456789"} {
		call(t, http.MethodPost, serve.url+"/console/sign-in", "token="+token, "Content-Type: application/x-www-form-urlencoded")
	}
	redis.Kill()
	require.NotEqual(t, http.StatusCreated, call(t, http.MethodPost, serve.url+"/v1/campaigns/spring/claims", `{"user_id":"bob"}`, admin).status)
	eventually(t, "the loss of Redis is not logged", func() bool { return strings.Contains(serve.problems.String(), "is redis up?") })
	said := serve.stop().stderr
	require.Contains(t, said, `"msg":"request"`)
	for _, secret := range []string{"hunter2", "aHVudGVyMjpodW50ZXIy", "eyJzdWIiOiJodW50ZXIyIn0"} {
		require.NotContains(t, said, secret)
	}
}

// Whatever is wrong with an address, and if no server answers, no
// command's output may contain four characters of the password, from a
// setting, a flag or a file.
func TestNoCommandQuotesAPieceOfAPassword(t *testing.T) {
	t.Parallel()
	const here, goodURL, goodDSN = "127.0.0.1:1", "redis://127.0.0.1:1", "root@tcp(127.0.0.1:1)/dibs"
	redis := []string{
		"redis://u:PW@" + here, "redis://u:PW@127.0.0.1:port", "redis://u:PW@" + here + "/x", "redis://u:PW",
		"redis://u:PW@" + here + ",127.0.0.1:2",
		"redis+sentinel://u:PW@" + here + "/m", "redis+sentinel://" + here + "/m?sentinel_password=PW", "'redis://u:PW@" + here + "'", "PW",
	}
	mysql := []string{
		"u:PW@tcp(" + here + ")/dibs", "u:PW@" + here + "/dibs", "mysql://u:PW@" + here + "/dibs", "'u:PW@tcp(" + here + ")/dibs'",
		"u:PW@tcp(127.0.0.1:port)/dibs", "u:PW@tcp(" + here + ")/dibs?parseTime=x", "u:PW", "PW",
	}
	ways := 0 // alternates the ways to give a setting
	dir := t.TempDir()
	check := func(secret string, settings map[string]string, command ...string) {
		ways++
		var environ []string
		args := slices.Clone(command)
		for setting, value := range settings {
			switch file := filepath.Join(dir, setting); ways % 3 {
			case 0:
				environ = append(environ, setting+"="+value)
			case 1:
				require.NoError(t, os.WriteFile(file, []byte(value), 0o600))
				environ = append(environ, setting+"_FILE="+file)
			default:
				args = append(args, flagOf(setting)+"="+value)
			}
		}
		got := run(t, environ, args...)
		require.Equal(t, command[0] == "config", got.code == 0, got.stderr)
		said := got.stdout + got.stderr
		for i := 0; i+4 <= len(secret); i++ {
			require.NotContains(t, said, secret[i:i+4], "%v, %s", command, settings)
		}
	}
	for special := range strings.SplitSeq("/ ? # : , % ; ( ' \\ %2F :// @", " ") {
		secret := "QXZ" + special + "JKV" + special + "WYQ"
		if special == "@" { // without another @, any parser takes the rest for a host
			redis = slices.DeleteFunc(redis, func(form string) bool { return !strings.Contains(form, "@") })
			mysql = slices.DeleteFunc(mysql, func(form string) bool { return !strings.Contains(form, "@") })
		}
		for i, form := range redis {
			url := strings.ReplaceAll(form, "PW", secret)
			dsn := strings.ReplaceAll(mysql[i%len(mysql)], "PW", secret)
			check(secret, map[string]string{"DIBS_REDIS_URL": url, "DIBS_MYSQL_DSN": dsn}, "config")
			check(secret, map[string]string{"DIBS_REDIS_URL": url, "DIBS_MYSQL_DSN": goodDSN}, "reconcile")
			check(secret, map[string]string{"DIBS_MYSQL_DSN": dsn, "DIBS_REDIS_URL": goodURL}, "migrate")
		}
		require.NotContains(t, run(t, nil, "migrate", "u:"+secret+"@tcp("+here+")/dibs").stderr, "QXZ")
	}
}

func TestATokenThatIsMadeIsTaken(t *testing.T) {
	t.Parallel()
	made := regexp.MustCompile(`^token: (dibs_[A-Za-z0-9_-]{43})\nline:  (ann admin sha256:[0-9a-f]{64} expires=\S+Z)\n$`)
	words := made.FindStringSubmatch(requireOK(t, run(t, nil, "token", "--actor", "ann", "--role", "admin", "--expires", "1h")))
	require.NotNil(t, words)
	token, line := words[1], words[2]
	require.Contains(t, line, fmt.Sprintf("%x", sha256.Sum256([]byte(token))))
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, []byte(line+"\n"), 0o600))
	serve := start(t, []string{"DIBS_TOKENS_FILE=" + file}, "serve")
	require.Equal(t, "unauthorized", call(t, http.MethodPost, serve.url+"/v1/campaigns", coupon).code())
	serve.post("/campaigns", coupon, "Authorization: Bearer "+token)
	require.NotContains(t, serve.stop().stderr, token)

	other := requireOK(t, run(t, nil, "token"))
	require.Regexp(t, `line:  viewer viewer sha256:[0-9a-f]{64}\n$`, other)
	require.NotContains(t, other, token)
	for _, bad := range [][]string{{"--actor", "a b"}, {"--role", "root"}, {"--expires", "1999-01-01T00:00:00Z"}, {"--expires", "-1h"}} {
		require.Equal(t, cmd.ExitUsage, run(t, nil, append([]string{"token"}, bad...)...).code, bad)
	}
}

// Probes' own listener must need no token and show nothing else.
func TestHealthcheckAndProbes(t *testing.T) {
	t.Parallel()
	probes := machine.Addr(t)
	serve := start(t, []string{"DIBS_PROBE_ADDR=" + probes, "DIBS_VIEWER_TOKEN=viewer-0123456789abcdef"}, "serve")
	at, nowhere := "DIBS_HTTP_ADDR="+strings.TrimPrefix(serve.url, "http://"), "DIBS_HTTP_ADDR=127.0.0.1:1"
	requireOK(t, run(t, []string{at}, "healthcheck"))
	requireOK(t, run(t, []string{at, "DIBS_METRICS_ADDR=127.0.0.1:1"}, "healthcheck", "--live"))
	requireOK(t, run(t, []string{nowhere, "DIBS_PROBE_ADDR=" + probes}, "healthcheck"))
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 404, "/v1/campaigns": 404, "/console": 404} {
		require.Equal(t, want, call(t, http.MethodGet, "http://"+probes+path, "").status, path)
	}
	serve.stop()
	requireRefusal(t, run(t, []string{at}, "healthcheck"), cmd.ExitFailed, "start the process", "refused")
	require.Equal(t, cmd.ExitFailed, run(t, []string{nowhere, "DIBS_PROBE_ADDR=" + probes}, "healthcheck").code)
}

// A consumer that waits for an unreachable Redis is healthy, and must
// say what it waits for.
func TestHealthcheckOfARoleThatWaits(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	consumer := start(t, s.environ, "consumer")
	environ := []string{"DIBS_METRICS_ADDR=" + strings.TrimPrefix(consumer.url, "http://")}
	require.Empty(t, requireOK(t, run(t, environ, "healthcheck")))
	s.redis.Kill()
	eventually(t, "the role does not say what is away", func() bool {
		return strings.HasSuffix(requireOK(t, run(t, environ, "healthcheck")), "away: redis\n")
	})
	requireOK(t, run(t, environ, "healthcheck", "--live"))
}

// Passwords must be changeable without a restart: first the file, then
// the servers. New connections must use the new one. An unusable file
// must leave the last one in force.
func TestPasswordsInFilesAreReplacedWhileItRuns(t *testing.T) {
	t.Parallel()
	s := newServers(t, "user dibs on >hunter2 ~* &* +@all")
	name := s.dsn[strings.LastIndex(s.dsn, "/")+1:]
	name, _, _ = strings.Cut(name, "?")
	user := "u" + name[max(0, len(name)-20):]
	s.exec("CREATE USER '" + user + "'@'%' IDENTIFIED BY 'hunter2'")
	t.Cleanup(func() { _, _ = s.db.Exec("DROP USER '" + user + "'@'%'") })
	s.exec("GRANT ALL ON `" + name + "`.* TO '" + user + "'@'%'")
	dir := t.TempDir()
	write := func(file, text string) string {
		path := filepath.Join(dir, file)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	url := func(password string) string {
		return strings.Replace(s.redis.URL(), "redis://", "redis://dibs:"+password+"@", 1) + "\n"
	}
	dsn := func(password string) string {
		return "\ufeff" + user + ":" + password + s.dsn[strings.LastIndex(s.dsn, "@"):] + "\r\n"
	}
	files := []string{"DIBS_REDIS_URL_FILE=" + write("redis", url("hunter2")), "DIBS_MYSQL_DSN_FILE=" + write("mysql", dsn("hunter2"))}
	requireOK(t, run(t, files, "migrate"))
	serve := start(t, files, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":99}`)
	serve.claim("spring", "ada")
	serve.synced("spring", 1)

	write("redis", url("tiger5"))
	write("mysql", dsn("tiger5"))
	admin := s.redis.Client()
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "dibs", "resetpass", ">tiger5").Err())
	s.exec("ALTER USER '" + user + "'@'%' IDENTIFIED BY 'tiger5'")
	disconnect := func() {
		require.NoError(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "dibs").Err())
		rows, err := s.db.Query("SELECT id FROM information_schema.processlist WHERE user = ?", user)
		require.NoError(t, err)
		defer func() { _ = rows.Close() }()
		var ids []int64
		for rows.Next() {
			var id int64
			require.NoError(t, rows.Scan(&id))
			ids = append(ids, id)
		}
		require.NoError(t, rows.Err())
		for _, id := range ids {
			_, _ = s.db.Exec("KILL ?", id) // it may have ended
		}
	}
	disconnect()
	eventually(t, "a claim is taken after both passwords changed", func() bool {
		return call(t, http.MethodPost, serve.url+"/v1/campaigns/spring/claims", `{"user_id":"eve"}`).status == http.StatusCreated
	})
	serve.synced("spring", 2)

	write("redis", "redis://dibs:oo/ps@127.0.0.1:1")
	write("mysql", "nonsense")
	eventually(t, "it says that a file can't be used", func() bool {
		disconnect()
		call(t, http.MethodPost, serve.url+"/v1/campaigns/spring/claims", `{"user_id":"bob"}`)
		return strings.Contains(serve.problems.String(), "what it said before stays in force")
	})
	eventually(t, "files that cannot be used change nothing", func() bool {
		return call(t, http.MethodPost, serve.url+"/v1/campaigns/spring/claims", `{"user_id":"zoe"}`).status == http.StatusCreated
	})
	said := serve.stop().stderr
	for _, secret := range []string{"hunter2", "tiger5", "oo/ps", "nonsense"} {
		require.NotContains(t, said, secret)
	}
}
