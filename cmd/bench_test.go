package cmd

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"dibs/internal/config"
	"dibs/internal/testenv"
	"dibs/proof/load"
)

func runBench(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, problems testenv.Buffer
	code = Run(t.Context(), Env{Args: append([]string{"bench"}, args...), Environ: environ, Stdout: &out, Stderr: &problems})
	return code, out.String(), problems.String()
}

func TestBenchStartsAServiceOfItsOwnAndTheBooksAgree(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := runBench(t, []string{"DIBS_ADMIN_TOKEN=secret-of-this-test"},
		"--batch", "-o", "json", "--rate", "100", "--duration", "1s", "--warm-up", "200ms", "--stock", "50")
	require.Equal(t, ExitOK, code, stderr)
	var report load.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.Equal(t, "embedded", report.Servers)
	require.EqualValues(t, 100, report.Sent)
	require.EqualValues(t, 70, report.Refused["sold_out"])
	require.Empty(t, report.Errors)
	require.True(t, report.Books.Agree)
	require.EqualValues(t, 50, report.Books.Synced)
}

func TestBenchRefusesBadFlagsInOneLine(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--rate", "0"}, {"--rate", "NaN"}, {"--rate", "x"}, {"--duration", "0s"}, {"--warm-up", "-1s"}, {"--connections", "0"},
		{"--users", "0"}, {"--stock", "0"}, {"--p99", "0s"}, {"--ramp-step", "1ms"}, {"--hold", "1.1"}, {"--hold", "NaN"},
		{"--ramp-max", "0"}, {"--ramp", "--rate", "300", "--ramp-max", "200"}, {"--sync-wait", "0s"}, {"--url", "localhost:8080"},
		{"--url", "ftp://x"}, {"--no-such"}, {"--batch", "--keys=false"},
	} {
		code, stdout, stderr := runBench(t, nil, args...)
		require.Equal(t, ExitUsage, code, args)
		require.Empty(t, stdout)
		require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
}

func TestSettingsReachTheServiceAsVariables(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(flags)
	flags.Int("rate", 1, "")
	require.NoError(t, flags.Parse([]string{"--redis-url", "redis://x", "--rate", "3", "--log-level", "error"}))
	require.Equal(t, []string{
		"A=b", "DIBS_HTTP_ADDR=127.0.0.1:0", "DIBS_LOG_LEVEL=error", "DIBS_REDIS_URL=redis://x", "DIBS_LOG_LEVEL=info", "DIBS_LOG_FORMAT=json",
	}, serviceEnviron([]string{"A=b"}, flags))
}

func TestAServiceThatCannotStartIsAFailureOfTheBench(t *testing.T) {
	t.Parallel()
	code, _, stderr := runBench(t, []string{"DIBS_HTTP_CONNS=1000", "DIBS_TLS_CERT=/none", "DIBS_TLS_KEY=/none"})
	require.Equal(t, ExitFailed, code)
	require.Contains(t, stderr, "DIBS_TLS_CERT", "it says why")
	require.Contains(t, stderr, "ended before it listened")
}
