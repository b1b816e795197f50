package trials_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testkit/testenv"
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

	require.NoError(t, redis.Client().Set(t.Context(), lua.StreamKey(0), "x", 0).Err())
	requireRefusal(t, run(t, environ, fewClaims...), cmd.ExitFailed, "in use", lua.StreamKey(0))
}

func TestLabRefusesWhatItCannotRun(t *testing.T) {
	t.Parallel()
	requireRefusal(t, run(t, nil, append(fewClaims, "--units", "21")...), cmd.ExitUsage, "--users", "21 units")
	requireRefusal(t, run(t, nil, "lab", "--rounds", "0"), cmd.ExitUsage, "--rounds")
	requireRefusal(t, run(t, nil, "lab", "--strategies", "luck"), cmd.ExitUsage, "luck")
}
