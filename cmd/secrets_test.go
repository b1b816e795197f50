package cmd_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testenv"
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
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://me:hunter2@" + testenv.Addr(t), "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20hunter2",
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
		"redis://u:PW@" + here, "rediss://u:PW@" + here, "redis://u:PW@127.0.0.1:port", "redis://u:PW@" + here + "/x", "redis://u:PW", "u:PW@" + here,
		"redis://u:PW@" + here + ",127.0.0.1:2", "redis+sentinel://u:PW@" + here + "/m", "redis+sentinel://" + here + "/m?sentinel_password=PW",
		"redis://u:PW@" + here + "?pool_size=x", "'redis://u:PW@" + here + "'", "PW",
	}
	mysql := []string{
		"u:PW@tcp(" + here + ")/dibs", "u:PW@" + here + "/dibs", "u:PW@tcp(" + here + ")", "mysql://u:PW@" + here + "/dibs", "'u:PW@tcp(" + here + ")/dibs'",
		"u:PW@tcp(127.0.0.1:port)/dibs", "u:PW@tcp(" + here + ")/dibs?ssl-mode=REQUIRED", "u:PW@tcp(" + here + ")/dibs?parseTime=x", "u:PW", "PW",
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
	for special := range strings.SplitSeq("+ / ? # : , % & = ; ( ) [ ] ' \" \\ $ ! %2F %zz :// @", " ") {
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
		}
		for _, form := range mysql {
			dsn := strings.ReplaceAll(form, "PW", secret)
			check(secret, map[string]string{"DIBS_MYSQL_DSN": dsn, "DIBS_REDIS_URL": goodURL}, "migrate")
		}
		got := run(t, nil, "migrate", "u:"+secret+"@tcp("+here+")/dibs")
		require.NotContains(t, got.stderr, "QXZ")
		got = run(t, nil, "u:"+secret)
		require.NotContains(t, got.stderr, "QXZ")
	}
}
