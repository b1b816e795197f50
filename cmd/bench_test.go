package cmd

import (
	"encoding/json"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"dibs/internal/config"
	"dibs/proof/load"
)

func TestBenchStartsAServiceOfItsOwnAndTheBooksAgree(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := runIn(t, []string{"DIBS_ADMIN_TOKEN=secret-of-this-test"},
		"bench", "--batch", "-o", "json", "--rate", "100", "--duration", "1s", "--warm-up", "200ms", "--stock", "50")
	require.Equal(t, ExitOK, code, stderr)
	var report load.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.Equal(t, "embedded", report.Servers)
	require.EqualValues(t, 100, report.Sent)
	require.EqualValues(t, 70, report.Refused["sold_out"])
	require.Empty(t, report.Errors)
	require.True(t, report.Books.Agree)
	require.EqualValues(t, 50, report.Books.Synced)
	require.NoError(t, verdict(&report))
	report.Ramp = &load.RampReport{}
	require.ErrorIs(t, verdict(&report), ErrBench, "no rate held")
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
	code, _, stderr := runIn(t, []string{"DIBS_HTTP_CONNS=1000", "DIBS_TLS_CERT=/none", "DIBS_TLS_KEY=/none"}, "bench")
	require.Equal(t, ExitFailed, code)
	require.Contains(t, stderr, "DIBS_TLS_CERT", "it says why")
	require.Contains(t, stderr, "ended before it listened")
}
