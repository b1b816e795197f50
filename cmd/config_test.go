package cmd_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
)

type line struct{ value, from string }

func configured(t *testing.T, environ []string, args ...string) map[string]line {
	t.Helper()
	out := requireOK(t, run(t, environ, append([]string{"config"}, args...)...))
	rows := regexp.MustCompile(`(?m)^(DIBS_\w+) +(.*?) +(default|environment|flag) +\S`).FindAllStringSubmatch(out, -1)
	all := map[string]line{}
	for _, row := range rows {
		all[row[1]] = line{row[2], row[3]}
	}
	require.Len(t, rows, len(variables), out)
	return all
}

func TestConfigShowsEverySettingAndItsDefault(t *testing.T) {
	t.Parallel()
	for variable, got := range configured(t, []string{"PATH=/bin", "HOME=/", "XDIBS_HTTP_ADDR=x"}) {
		want, known := variables[variable]
		require.True(t, known, variable)
		require.Equal(t, "default", got.from, variable)
		if want != "*" {
			require.Equal(t, want, got.value, variable)
		}
	}
}

func TestConfigAsJSON(t *testing.T) {
	t.Parallel()
	var all []map[string]string
	decode(t, requireOK(t, run(t, []string{"DIBS_PARTITIONS=3"}, "--flush-size", "7", "config", "-o", "json")), &all)
	require.Len(t, all, len(variables))
	for _, one := range all {
		switch one["variable"] {
		case "DIBS_PARTITIONS":
			require.Equal(t, []string{"3", "environment"}, []string{one["value"], one["from"]})
			require.NotEmpty(t, one["meaning"])
		case "DIBS_FLUSH_SIZE":
			require.Equal(t, []string{"7", "flag"}, []string{one["value"], one["from"]}, "flags may stand before the command")
		}
	}
}

func TestAVariableThatIsNoSettingEndsEveryCommand(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"config", "serve", "migrate", "consumer"} {
		requireRefusal(t, run(t, []string{"DIBS_HTTP_ADRR=x"}, command), cmd.ExitUsage, "DIBS_HTTP_ADRR", "did you mean DIBS_HTTP_ADDR?")
		requireRefusal(t, run(t, []string{"DIBS_REDIS_URL="}, command), cmd.ExitUsage, "DIBS_REDIS_URL")
	}
	requireOK(t, run(t, []string{"DIBS_HTTP_ADRR=x"}, "version"))
	requireOK(t, run(t, []string{"DIBS_SERVICE_HOST=10.0.0.1"}, "config"))
}
