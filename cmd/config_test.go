package cmd_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
)

// line is one line of `dibs config`.
type line struct{ value, from string }

// configured runs `dibs config` and returns its lines by variable.
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
	decode(t, requireOK(t, run(t, []string{"DIBS_PARTITIONS=3"}, "config", "-o", "json")), &all)
	require.Len(t, all, len(variables))
	for _, one := range all {
		if one["variable"] == "DIBS_PARTITIONS" {
			require.Equal(t, []string{"3", "environment"}, []string{one["value"], one["from"]})
			require.NotEmpty(t, one["meaning"])
		}
	}
}

func TestFlagsWinOverTheEnvironmentAndThatOverDefaults(t *testing.T) {
	t.Parallel()
	other := map[string][2]string{
		"DIBS_HTTP_ADDR": {"127.0.0.1:1", "127.0.0.1:2"}, "DIBS_METRICS_ADDR": {"127.0.0.1:3", "127.0.0.1:4"}, "DIBS_DATA_DIR": {"/a", "/b"},
		"DIBS_REDIS_URL": {"redis://a", "redis://b"}, "DIBS_MYSQL_DSN": {"a@tcp(a)/a", "b@tcp(b)/b"}, "DIBS_MYSQL_CONNS": {"4", "1000"}, "DIBS_FINANCE_DSN": {"c@tcp(c)/c", "d@tcp(d)/d"},
		"DIBS_PARTITIONS": {"2", "256"}, "DIBS_FLUSH_SIZE": {"1", "10000"}, "DIBS_FLUSH_INTERVAL": {"1ms", "1m"}, "DIBS_IDLE_EVICT": {"100ms", "10000h"},
		"DIBS_DURABILITY": {"fsync", "mysql"}, "DIBS_GROUPS": {"syncer", "a,syncer"}, "DIBS_URL": {"http://a", "http://b"}, "DIBS_WEBHOOKS_FILE": {"/a", "/b"}, "DIBS_WEBHOOKS_PRIVATE": {"1", "0"}, "DIBS_READ_AHEAD": {"1", "0"}, "DIBS_SHUTDOWN_TIMEOUT": {"1s", "10m"},
		"DIBS_USER_RATE": {"0.5", "7"}, "DIBS_USER_RATE_SHARED": {"on", "off"}, "DIBS_NAME": {"one", "two"}, "DIBS_LOG_LEVEL": {"debug", "error"}, "DIBS_LOG_FORMAT": {"json", "text"},
		"DIBS_METRICS_CAMPAIGNS": {"0", "1000"}, "DIBS_CONSOLE": {"off", "on"}, "DIBS_SUBJECT_SECRET": {"****", "****"},
	}
	for variable, values := range other {
		environ := []string{variable + "=" + values[0]}
		require.Equal(t, line{values[0], "environment"}, configured(t, environ)[variable], variable)
		require.Equal(t, line{values[1], "flag"}, configured(t, nil, flagOf(variable), values[1])[variable], variable)
		all := configured(t, environ, flagOf(variable)+"="+values[1])
		require.Equal(t, line{values[1], "flag"}, all[variable], variable)
		delete(all, variable)
		for name, got := range all {
			require.Equal(t, "default", got.from, "%s, with %s set", name, variable)
		}
		if strings.HasSuffix(variable, "_ADDR") || strings.HasSuffix(variable, "_URL") || strings.HasSuffix(variable, "_DSN") || variable == "DIBS_URL" {
			requireRefusal(t, run(t, []string{variable + "="}, "config"), cmd.ExitUsage, variable)
			continue
		}
		empty := configured(t, []string{variable + "="})[variable]
		require.Equal(t, "default", empty.from, "an empty variable is one that is not set")
	}
}

func TestFlagsMayStandBeforeTheCommand(t *testing.T) {
	t.Parallel()
	out := requireOK(t, run(t, nil, "--partitions", "3", "config"))
	require.Regexp(t, `DIBS_PARTITIONS +3 +flag`, out)
}

func TestConfigMasksSecrets(t *testing.T) {
	t.Parallel()
	settings := map[string]string{
		"DIBS_ADMIN_TOKEN":      "a-" + secret,
		"DIBS_STOREFRONT_TOKEN": "b-" + secret,
		"DIBS_VIEWER_TOKEN":     "c-" + secret,
		"DIBS_SUBJECT_SECRET":   "d-" + secret,
		"DIBS_REDIS_URL":        "redis://me:" + secret + "@one:6379/0",
		"DIBS_MYSQL_DSN":        "me:" + secret + "@tcp(one:3306)/dibs",
		"DIBS_FINANCE_DSN":      "me:" + secret + "@tcp(one:3306)/books",
	}
	var environ, args []string
	for variable, value := range settings {
		environ = append(environ, variable+"="+value)
		args = append(args, flagOf(variable), value)
	}
	for _, all := range []map[string]line{configured(t, environ), configured(t, nil, args...)} {
		for variable := range settings {
			require.Contains(t, all[variable].value, "****", variable)
			require.NotContains(t, all[variable].value, "hunter2", variable)
		}
		require.Equal(t, "redis://me:****@one:6379/0", all["DIBS_REDIS_URL"].value, "what is no secret can be read")
	}
}

// A refusal quotes no secret, whatever is wrong with it: what a service says is kept by whoever runs it.
func TestRefusalsQuoteNoSecret(t *testing.T) {
	t.Parallel()
	for _, environ := range [][]string{
		{"DIBS_ADMIN_TOKEN=hunter2 hunter2"},
		{"DIBS_VIEWER_TOKEN=hunter2\t"},
		{"DIBS_ADMIN_TOKEN=" + secret, "DIBS_VIEWER_TOKEN=" + secret},
		{"DIBS_REDIS_URL=redis://me:hunter2@127.0.0.1:port", noOne[1]},
		{"DIBS_REDIS_URL=ftp://me:hunter2@127.0.0.1", noOne[1]},
		{noOne[0], "DIBS_MYSQL_DSN=me:hunter2@127.0.0.1/dibs"},
	} {
		got := run(t, environ, "consumer")
		require.Contains(t, []int{cmd.ExitUsage, cmd.ExitFailed}, got.code, got.stderr)
		require.NotContains(t, got.stderr+got.stdout, "hunter2", environ)
	}
}

func TestAVariableThatIsNoSettingEndsEveryCommand(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"config", "serve", "demo", "healthcheck", "migrate", "consumer"} {
		requireRefusal(t, run(t, []string{"DIBS_HTTP_ADRR=x"}, command), cmd.ExitUsage, "DIBS_HTTP_ADRR", "did you mean DIBS_HTTP_ADDR?")
		requireRefusal(t, run(t, []string{"DIBS_REDIS_URL="}, command), cmd.ExitUsage, "DIBS_REDIS_URL")
	}
	requireOK(t, run(t, []string{"DIBS_HTTP_ADRR=x"}, "version"))
	requireOK(t, run(t, []string{"DIBS_SERVICE_HOST=10.0.0.1"}, "config"))
}

func TestEverySettingIsRefusedByItsVariable(t *testing.T) {
	t.Parallel()
	for variable, values := range map[string][]string{
		"DIBS_PARTITIONS": {"0", "257", "-1", "one"}, "DIBS_FLUSH_SIZE": {"0", "10001", "1e3"}, "DIBS_FLUSH_INTERVAL": {"0s", "61s", "50", "-1ms"},
		"DIBS_IDLE_EVICT": {"99ms", "10001h", "never"}, "DIBS_DURABILITY": {"slow", "replica:1", "Fast"},
		"DIBS_GROUPS": {"finance", "syncer,,x", "syncer, "}, "DIBS_WEBHOOKS_PRIVATE": {"yes please"}, "DIBS_READ_AHEAD": {"perhaps"}, "DIBS_SHUTDOWN_TIMEOUT": {"999ms", "11m"}, "DIBS_USER_RATE": {"-0.1", "NaN", "x"},
		"DIBS_USER_RATE_SHARED": {"1"},
		"DIBS_NAME":             {" "}, "DIBS_LOG_LEVEL": {"INFO", "trace"}, "DIBS_LOG_FORMAT": {"xml"}, "DIBS_ADMIN_TOKEN": {"a b"},
		"DIBS_STOREFRONT_TOKEN": {"a\nb"}, "DIBS_VIEWER_TOKEN": {"\u00a0"}, "DIBS_METRICS_CAMPAIGNS": {"-1", "1001"}, "DIBS_CONSOLE": {"no"},
	} {
		for _, value := range values {
			for _, command := range []string{"config", "serve"} {
				requireRefusal(t, run(t, []string{variable + "=" + value}, command), cmd.ExitUsage, variable)
				requireRefusal(t, run(t, nil, command, flagOf(variable)+"="+value), cmd.ExitUsage, variable)
			}
		}
	}
}
