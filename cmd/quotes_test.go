package cmd_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is wrong with an address, and if no server answers, no
// command's output may contain four characters of the password, from a
// setting, a flag or a file.
func TestNoCommandQuotesAPieceOfAPassword(t *testing.T) {
	t.Parallel()
	const here = "127.0.0.1:1"
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
	file := filepath.Join(t.TempDir(), "file")
	check := func(secret, setting, value string, command ...string) {
		others := map[string]string{"DIBS_REDIS_URL": noOne[1], "DIBS_MYSQL_DSN": noOne[0]}
		require.NoError(t, os.WriteFile(file, []byte(value), 0o600))
		ways++
		var got ended
		switch ways % 3 {
		case 0:
			got = run(t, []string{setting + "=" + value, others[setting]}, command...)
		case 1:
			got = run(t, []string{setting + "_FILE=" + file, others[setting]}, command...)
		default:
			got = run(t, []string{others[setting]}, append(command, flagOf(setting)+"="+value)...)
		}
		require.Equal(t, command[0] == "config", got.code == 0, got.stderr)
		said := got.stdout + got.stderr
		for i := 0; i+4 <= len(secret); i++ {
			require.NotContains(t, said, secret[i:i+4], "%v, %s", command, value)
		}
	}
	for special := range strings.SplitSeq("+ / ? # : , % & = ; ( ) [ ] ' \" \\ $ ! %2F %zz :// @", " ") {
		secret := "QXZ" + special + "JKV" + special + "WYQ"
		if special == "@" { // without another @, any parser takes the rest for a host
			redis = slices.DeleteFunc(redis, func(form string) bool { return !strings.Contains(form, "@") })
			mysql = slices.DeleteFunc(mysql, func(form string) bool { return !strings.Contains(form, "@") })
		}
		for _, form := range redis {
			value := strings.ReplaceAll(form, "PW", secret)
			check(secret, "DIBS_REDIS_URL", value, "config")
			check(secret, "DIBS_REDIS_URL", value, "reconcile")
		}
		for _, form := range mysql {
			value := strings.ReplaceAll(form, "PW", secret)
			check(secret, "DIBS_MYSQL_DSN", value, "config")
			check(secret, "DIBS_MYSQL_DSN", value, "migrate")
		}
		got := run(t, nil, "migrate", "u:"+secret+"@tcp("+here+")/dibs")
		require.NotContains(t, got.stderr, "QXZ")
		got = run(t, nil, "u:"+secret)
		require.NotContains(t, got.stderr, "QXZ")
	}
}
