package trials_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/proof/lab"
)

// fewClaims are flags of a lab that takes a second.
var fewClaims = []string{
	"lab", "--strategies", "read-then-write,set-nx-px", "--rounds", "1", "--duration", "100ms",
	"--users", "20", "--units", "10", "--connections", "4",
}

func TestLabRunsItsStrategiesOnTheServersOfTheSettings(t *testing.T) {
	t.Parallel()
	redis, db := testenv.Redis(t), testenv.Database(t)
	environ := []string{"DIBS_REDIS_URL=" + redis.URL(), "DIBS_MYSQL_DSN=" + db.DSN}
	var report lab.Report
	got := run(t, environ, append(fewClaims, "--json")...)
	require.NoError(t, json.Unmarshal([]byte(requireOK(t, got)), &report))
	require.Equal(t, []string{"read-then-write", "set-nx-px"}, []string{report.Results[0].Name, report.Results[1].Name})
	for _, entry := range report.Results {
		require.Positive(t, entry.ClaimsPerSecond, entry.Name)
		require.Len(t, entry.Rounds, 1)
	}
	require.Zero(t, report.Results[1].Oversold)
	require.Contains(t, strings.Join(report.Servers, " "), "Redis ")
	keys, err := redis.Client().Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Empty(t, keys, "it cleans up")

	table := requireOK(t, run(t, environ, fewClaims...))
	require.Contains(t, table, "read, then write")
	require.Contains(t, table, "sell-out: 10 units, 20 users of 1 each")

	markdown := requireOK(t, run(t, environ, append(fewClaims, "--markdown")...))
	require.Contains(t, markdown, "\n| SET NX PX | ")

	require.NoError(t, redis.Client().Set(t.Context(), lua.StreamKey(0), "x", 0).Err())
	requireRefusal(t, run(t, environ, fewClaims...), cmd.ExitFailed, "in use", lua.StreamKey(0))
}

func TestLabListsEveryStrategyWithItsFlaw(t *testing.T) {
	t.Parallel()
	out := requireOK(t, run(t, nil, "lab", "--list"))
	for _, entry := range lab.Strategies() {
		require.Regexp(t, `(?m)^`+entry.Name+` {2,}.* {2,}\S`, out)
		require.Contains(t, out, entry.Flaw)
	}
	require.Equal(t, len(lab.Strategies())+1, strings.Count(out, "\n"))
}

func TestLabRefusesServersItCannotUse(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t).URL()
	for _, one := range []struct{ environ, words string }{
		{"DIBS_REDIS_URL=" + redis + " DIBS_MYSQL_DSN=root@tcp(127.0.0.1:1)/x", "127.0.0.1:1"},
		{"DIBS_REDIS_URL=redis://127.0.0.1:1 DIBS_MYSQL_DSN=" + testenv.Database(t).DSN, "127.0.0.1:1"},
	} {
		got := run(t, strings.Fields(one.environ), fewClaims...)
		require.Equal(t, cmd.ExitFailed, got.code, got.stderr)
		require.Contains(t, got.stderr, one.words)
	}
	requireRefusal(t, run(t, nil, append(fewClaims, "--units", "21")...), cmd.ExitUsage, "--users", "21 units")
	requireRefusal(t, run(t, nil, "lab", "--rounds", "0"), cmd.ExitUsage, "--rounds")
	requireRefusal(t, run(t, nil, "lab", "--strategies", "luck"), cmd.ExitUsage, "luck")
}
