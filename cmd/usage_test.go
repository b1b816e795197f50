package cmd_test

import (
	"encoding/csv"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testkit/testenv"
)

// commands are all public commands, as the contract lists them.
var commands = []string{
	"demo", "serve", "api", "consumer", "syncer", "finance", "finance parked", "finance replay", "finance discard",
	"groups", "groups list", "groups add", "groups remove", "webhooks", "webhooks parked", "webhooks replay", "webhooks discard",
	"migrate", "reconcile", "bench", "config", "audit", "token", "healthcheck", "version",
	"redeem", "release", "reopen", "extend", "tail", "claims", "ledger", "packets", "packets add", "parked", "parked list", "parked retry", "parked discard", "settlement", "grants", "archive", "webhooks test", "campaign", "campaign create", "campaign list", "campaign get", "campaign set", "campaign pause", "campaign open", "campaign close", "campaign delete", "claim", "watch",
}

// variables are all settings with their default in `dibs config`; "*"
// depends on the machine.
var variables = map[string]string{
	"DIBS_HTTP_ADDR": "127.0.0.1:8080", "DIBS_METRICS_ADDR": "", "DIBS_REDIS_URL": "embedded", "DIBS_MYSQL_DSN": "embedded",
	"DIBS_MYSQL_CONNS": "16",
	"DIBS_FINANCE_DSN": "", "DIBS_DATA_DIR": "temporary", "DIBS_ADMIN_TOKEN": "", "DIBS_STOREFRONT_TOKEN": "", "DIBS_VIEWER_TOKEN": "",
	"DIBS_HTTP_ADDR_FILE": "", "DIBS_METRICS_ADDR_FILE": "", "DIBS_PROBE_ADDR_FILE": "", "DIBS_REDIS_URL_FILE": "", "DIBS_MYSQL_DSN_FILE": "",
	"DIBS_FINANCE_DSN_FILE": "", "DIBS_JWKS_URL_FILE": "", "DIBS_URL_FILE": "", "DIBS_TOKEN_FILE": "", "DIBS_SUBJECT_SECRET_FILE": "",
	"DIBS_ADMIN_TOKEN_FILE": "", "DIBS_STOREFRONT_TOKEN_FILE": "", "DIBS_VIEWER_TOKEN_FILE": "", "DIBS_TOKENS_FILE": "", "DIBS_TLS_CERT": "",
	"DIBS_JWKS_FILE": "", "DIBS_JWKS_URL": "", "DIBS_JWT_ISSUER": "", "DIBS_JWT_AUDIENCE": "",
	"DIBS_TLS_KEY": "", "DIBS_INSECURE": "0", "DIBS_HTTP_CONNS": "10000", "DIBS_HTTP_IDLE_TIMEOUT": "10m20s", "DIBS_TRUSTED_PROXIES": "", "DIBS_CORS_ORIGINS": "", "DIBS_PROBE_ADDR": "", "DIBS_JWKS_MAX_AGE": "24h", "DIBS_ACCESS_LOG": "0",
	"DIBS_PARTITIONS": "1", "DIBS_FLUSH_SIZE": "2000", "DIBS_FLUSH_INTERVAL": "50ms", "DIBS_IDLE_EVICT": "30m", "DIBS_STREAM_KEEP": "1h", "DIBS_STREAM_KEEP_BYTES": "1GiB", "DIBS_DURABILITY": "fast",
	"DIBS_GROUPS": "syncer,finance", "DIBS_URL": "http://127.0.0.1:8080", "DIBS_TOKEN": "", "DIBS_WEBHOOKS_FILE": "", "DIBS_WEBHOOKS_PRIVATE": "0", "DIBS_READ_AHEAD": "false", "DIBS_SHUTDOWN_TIMEOUT": "15s", "DIBS_USER_RATE": "0", "DIBS_USER_RATE_SHARED": "off", "DIBS_NAME": "*", "DIBS_LOG_LEVEL": "info",
	"DIBS_LOG_FORMAT": "text", "DIBS_METRICS_CAMPAIGNS": "50", "DIBS_CONSOLE": "on", "DIBS_SUBJECT_SECRET": "",
}

func flagOf(variable string) string {
	return "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(variable, "DIBS_")), "_", "-")
}

// noOne is an environment with servers that don't run: refusals must
// not need them.
var noOne = []string{"DIBS_REDIS_URL=redis://127.0.0.1:1", "DIBS_MYSQL_DSN=root@tcp(127.0.0.1:1)/dibs"}

func TestHelpVersionAndCompletion(t *testing.T) {
	t.Parallel()
	help := requireOK(t, run(t, nil))
	require.Equal(t, help, requireOK(t, run(t, nil, "--help")))
	for _, name := range append([]string{"lab", "torture", "completion"}, commands...) {
		if !strings.Contains(name, " ") {
			require.Regexp(t, `(?m)^  `+name+` +\S.{10,}$`, help)
		}
	}
	settings := requireOK(t, run(t, nil, "help", "settings"))
	for variable := range variables {
		require.Regexp(t, `(?m)^ +`+flagOf(variable)+` string +\S.*\(`+variable+`\)`, settings)
	}
	version := requireOK(t, run(t, nil, "version"))
	require.Regexp(t, `^dibs version \S+ \(commit \S+, [^,]+\)\n$`, version)
	require.Equal(t, version, requireOK(t, run(t, nil, "--version")))
	require.Contains(t, requireOK(t, run(t, nil, "version", "-o", "json")), `"version":`)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		require.Contains(t, requireOK(t, run(t, nil, "completion", shell)), "completion")
	}
	require.Regexp(t, `(?m)^reconcile\t`, requireOK(t, run(t, nil, "__complete", "rec")))
}

func TestASingleDocumentIsCSVToo(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"version", "token"} {
		rows, err := csv.NewReader(strings.NewReader(requireOK(t, run(t, nil, name, "-o", "csv")))).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 2)
		require.Contains(t, rows[0], map[string]string{"version": "commit", "token": "line"}[name])
	}
}

// Commands that are built from the source tree must say what they need
// if it is missing.
func TestCommandsOfACloneSayWhatTheyNeed(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range [][]string{{"lab"}, {"torture", "--help"}} {
		got := run(t, nil, args...)
		requireRefusal(t, got, cmd.ExitUsage, "`dibs "+args[0]+"`", "a clone of the source tree", "redis-server and mariadbd")
	}
}

// Every dibs line in an example must be a valid command.
func TestEveryCommandExplainsItself(t *testing.T) {
	t.Parallel()
	line := regexp.MustCompile(`(?m)^  (?:[A-Z_]+='?[^ ']*'? )*dibs ([a-z].*?)(?:  +.*)?(?: > \S+)?$`)
	for _, name := range commands {
		out := requireOK(t, run(t, nil, append(strings.Fields(name), "--help")...))
		require.Regexp(t, `(?m)^Usage:\n  dibs `+name+` `, out)
		_, examples, found := strings.Cut(out, "Examples:\n")
		require.True(t, found, "no examples")
		examples, _, _ = strings.Cut(examples, "\n\n")
		require.Contains(t, examples, "dibs "+name)
		for _, example := range line.FindAllStringSubmatch(examples, -1) {
			// flags are parsed before help is printed
			requireOK(t, run(t, nil, append(strings.Fields(example[1]), "--help")...))
		}
	}
}

// The words before a command are its environment, beside noOne.
func TestBadUsageIsRefusedInOneLine(t *testing.T) {
	t.Parallel()
	for _, bad := range []struct{ line, words string }{
		{"dmeo", `"demo"`},
		{"zzzz", "dibs help"},
		{"campaign lst --nope", `did you mean "list"? Usage: dibs campaign COMMAND`},
		{"serve --htpt-addr=x", "did you mean --http-addr? Usage: dibs serve"},
		{"--nope", "--nope"},
		{"serve -x", "-x"},
		{"help finance zzzz", "zzzz"},
		{"serve now", `"now"`},
		{"campaign pause spring summer", "unexpected argument"},
		{"version now", `"now"`},
		{"completion bash now", `"now"`},
		{"completion pwsh", `"pwsh"`},
		{"parked list --campaign a/b", "bad id"},
		{"parked retry --campaign a/b", "bad id"},
		{"finance discard", "MESSAGE is missing, such as `dibs finance discard p0/"},
		{"reconcile --json=perhaps", "--json"},
		{"reconcile --give-up-claims", "--repair"},
		{"reconcile --campaign a/b", "bad id"},
		{"audit --since 9999-12-31T23:59:59-01:00", "--since"},
		{"demo --shards 65", "--shards must be 1 to 64"},
		{"DIBS_WEBHOOKS_FILE=/none webhooks", "DIBS_WEBHOOKS_FILE: stat /none"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317 OTEL_EXPORTER_OTLP_PROTOCOL=grpc serve",
			"OTEL_EXPORTER_OTLP_PROTOCOL: must be http/protobuf"},

		{"serve --http-addr :99999", "DIBS_HTTP_ADDR"},
		{"api --http-addr 8080", "DIBS_HTTP_ADDR"},
		{"consumer --metrics-addr :99999", "DIBS_METRICS_ADDR"},
		{"consumer --name=", "DIBS_NAME"},
		{"DIBS_ADMIN_TOKEN=secret serve --storefront-token=secret", "DIBS_STOREFRONT_TOKEN"},
		{"api --http-addr 0.0.0.0:0 --admin-token=a-long-secret-of-many", "DIBS_INSECURE"},
		{"consumer --metrics-addr :0 --admin-token=a-long-secret-of-many", "DIBS_INSECURE"},
		{"api --http-addr 0.0.0.0:0 --insecure=1 --admin-token=secret", "DIBS_ADMIN_TOKEN"}, // 6 characters
		{"DIBS_ADMIN_TOKEN=secret serve --admin-token-file=/dev/null", "DIBS_ADMIN_TOKEN_FILE"},
		{"syncer --tokens-file=/no/such --metrics-addr 127.0.0.1:0", "DIBS_TOKENS_FILE"},
		{"serve --jwks-file=/no/such --jwt-issuer=i --jwt-audience=a", "DIBS_JWKS_FILE"},
		{"api --jwks-url=https://id.example --jwt-issuer=i", "DIBS_JWT_AUDIENCE"},
		{"serve --tls-cert=/no/such", "DIBS_TLS_KEY"},
		{"serve --tls-cert=/no/such --tls-key=/no/such", "DIBS_TLS_CERT"},

		{"bench --rate fast", "--rate"},
		{"bench --ramp --hold 2", "--hold"},
		{"bench --ramp --rate 300 --ramp-max 200", ""},
		{"bench --ramp --rate 639 --ramp-step 100ms", "--ramp-step"},
		{"bench --batch --keys=false", ""},
	} {
		t.Run(bad.line, func(t *testing.T) {
			t.Parallel()
			environ, args := slices.Clone(noOne), strings.Fields(bad.line)
			for strings.Contains(args[0], "=") && args[0][0] != '-' {
				environ, args = append(environ, args[0]), args[1:]
			}
			requireRefusal(t, run(t, environ, args...), cmd.ExitUsage, bad.words)
		})
	}
}

// A variable of a script that isn't set must not select all.
func TestAnEmptyArgumentIsRefused(t *testing.T) {
	t.Parallel()
	for line, word := range map[string]string{
		"finance replay": "MESSAGE", "finance discard": "MESSAGE", "watch": "CAMPAIGN", "claims": "CAMPAIGN", "release": "CLAIM", "groups remove": "GROUP", "campaign pause": "CAMPAIGN", "campaign pause --all": "CAMPAIGN",
		"settlement --date": "--date", "redeem x --order": "--order",
	} {
		requireRefusal(t, run(t, noOne, append(strings.Fields(line), "")...), cmd.ExitUsage, word+" is empty")
	}
}

func TestRolesThatNeedServersSaySo(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"api", "consumer", "syncer", "reconcile"} {
		requireRefusal(t, run(t, nil, role), cmd.ExitUsage, "DIBS_REDIS_URL", "dibs "+role, "dibs serve")
	}
	requireRefusal(t, run(t, nil, "migrate"), cmd.ExitUsage, "DIBS_MYSQL_DSN")
	requireRefusal(t, run(t, noOne[:1], "finance", "discard", "x"), cmd.ExitUsage, "DIBS_FINANCE_DSN")
	// one server without the other
	for _, command := range []string{"serve", "demo", "api"} {
		for _, line := range noOne {
			requireRefusal(t, run(t, []string{line}, command), cmd.ExitUsage, "DIBS_REDIS_URL", "DIBS_MYSQL_DSN")
		}
	}
}

func TestServersThatAreNoneAreTheSettingsFault(t *testing.T) {
	t.Parallel()
	redis := "DIBS_REDIS_URL=" + testenv.Redis(t).URL()
	for variable, values := range map[string][]string{
		"DIBS_REDIS_URL": {"nonsense", "http://127.0.0.1:1", "redis://127.0.0.1:port"},
		"DIBS_MYSQL_DSN": {"nonsense", "root@127.0.0.1/dibs", "root@tcp(127.0.0.1:1)/dibs?loc=Nowhere"},
	} {
		for _, value := range values {
			for _, command := range []string{"serve", "consumer", "reconcile"} {
				requireRefusal(t, run(t, []string{redis, noOne[1], variable + "=" + value}, command), cmd.ExitUsage, variable)
			}
		}
	}
}

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
	for _, command := range []string{"config", "consumer"} {
		requireRefusal(t, run(t, []string{"DIBS_HTTP_ADRR=x"}, command), cmd.ExitUsage, "DIBS_HTTP_ADRR", "did you mean DIBS_HTTP_ADDR?")
		requireRefusal(t, run(t, []string{"DIBS_REDIS_URL="}, command), cmd.ExitUsage, "DIBS_REDIS_URL")
	}
	requireOK(t, run(t, []string{"DIBS_HTTP_ADRR=x"}, "version"))
	requireOK(t, run(t, []string{"DIBS_SERVICE_HOST=10.0.0.1"}, "config"))
}
