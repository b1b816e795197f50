package cmd

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
)

// Commands without data to print: roles, demos, SQL for a MySQL
// client, a line for a probe, and other programs' output.
var printNothing = []string{
	"dibs demo", "dibs serve", "dibs api", "dibs consumer", "dibs syncer", "dibs finance", "dibs webhooks",
	"dibs grants", "dibs healthcheck", "dibs lab", "dibs torture", "dibs help",
}

// everyCommand are those that do something themselves.
func everyCommand(c *cobra.Command) (all []*cobra.Command) {
	if c.HasParent() && (!c.HasSubCommands() || slices.Contains(printNothing, c.CommandPath())) {
		all = append(all, c)
	}
	for _, below := range c.Commands() {
		all = append(all, everyCommand(below)...)
	}
	return all
}

func runIn(t *testing.T, environ []string, args ...string) (code int, out, problems string) {
	t.Helper()
	var stdout, stderr testenv.Buffer
	code = Run(t.Context(), Env{Args: args, Environ: environ, Stdout: &stdout, Stderr: &stderr})
	return code, stdout.String(), stderr.String()
}

func TestEveryCommandThatPrintsHasOneFlagForIt(t *testing.T) {
	t.Parallel()
	for _, c := range everyCommand(newRoot(Env{})) {
		form := c.Flags().Lookup("output")
		alias := c.Flags().Lookup("json")
		if slices.Contains(printNothing, c.CommandPath()) {
			require.Nil(t, form, c.CommandPath())
			require.Nil(t, alias, c.CommandPath())
			continue
		}
		require.NotNil(t, form, c.CommandPath())
		require.Equal(t, "o", form.Shorthand)
		require.True(t, alias.Hidden, "%s has --json for scripts alone", c.CommandPath())
		require.NoError(t, c.ParseFlags([]string{"--json"}))
		require.Equal(t, "json", form.Value.String())
	}
}

func refused(t *testing.T, problems string) refusal {
	t.Helper()
	require.Equal(t, 1, strings.Count(problems, "\n"), problems)
	var printed struct{ Error refusal }
	require.NoError(t, json.Unmarshal([]byte(problems), &printed), problems)
	return printed.Error
}

func TestEveryCommandOverHTTPNamesTheFlagAndTheVariable(t *testing.T) {
	t.Parallel()
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"code":"unauthorized","status":401,"detail":"Who are you?","field":"token"}`))
	}))
	t.Cleanup(gate.Close)
	for _, line := range []string{
		"campaign list", "groups list", "packets add rain --count 1 --amount 1", "claim spring --user ada", "watch spring --once",
	} {
		args := strings.Fields(line)
		code, _, problems := runIn(t, nil, append(args, "--url", "nonsense")...)
		require.Equal(t, ExitUsage, code, line)
		require.Contains(t, problems, "--url or DIBS_URL")
		code, out, problems := runIn(t, []string{"DIBS_URL=" + gate.URL}, append(args, "-o", "json")...)
		require.Equal(t, ExitFailed, code)
		require.Empty(t, out)
		printed := refused(t, problems)
		require.Equal(t, []string{"unauthorized", "Who are you?", "token"}, []string{printed.Code, printed.Detail, printed.Field})
		require.Contains(t, printed.Message, "--token or DIBS_TOKEN")
		code, out, problems = runIn(t, []string{"DIBS_URL=http://127.0.0.1:1"}, args...)
		require.Equal(t, ExitFailed, code)
		require.Empty(t, out)
		require.Contains(t, problems, "127.0.0.1:1")
		require.Contains(t, problems, "--url or DIBS_URL")
	}
}

func TestShellsCompleteNames(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/campaigns":
			if r.URL.Query().Get("q") != "sp" {
				return
			}
			_, _ = w.Write([]byte(`{"campaigns":[{"id":"spring"},{"id":"sports"}]}`))
		case "/v1/groups":
			_, _ = w.Write([]byte(`{"groups":[{"name":"audit"}]}`))
		}
	}))
	t.Cleanup(api.Close)
	file := filepath.Join(t.TempDir(), "endpoints.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"endpoints":[{"name":"shop","url":"https://shop.example/hooks",`+
		`"secrets":["whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="],"events":["claim.accepted"]}]}`), 0o600))
	over := []string{"DIBS_URL=" + api.URL, "DIBS_WEBHOOKS_FILE=" + file}
	for line, want := range map[string]string{
		"campaign get sp": "spring\nsports\n", "reconcile --campaign sp": "spring\nsports\n", "groups remove a": "audit\n",
		"webhooks test s": "shop\n", "webhooks replay --endpoint s": "shop\n", "audit -o t": "table\njson\ncsv\n", "campaign create sp": "",
	} {
		_, out, _ := runIn(t, over, append([]string{"__complete"}, strings.Fields(line)...)...)
		require.Equal(t, want+":4\n", out, line)
	}
	_, out, problems := runIn(t, []string{"DIBS_URL=http://127.0.0.1:1"}, "__complete", "campaign", "get", "sp")
	require.Equal(t, ":4\n", out)
	require.NotContains(t, problems, "dibs:")
}

// A field of the API that is called as a package of ours is.
func TestAnErrorNamesTheFieldThatTheAPINames(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"status":422,"code":"invalid","detail":"split: is required, or a list of packets","field":"split"}`))
	}))
	t.Cleanup(api.Close)
	code, _, problems := runIn(t, nil, "packets", "add", "rain", "--count", "1", "--amount", "1", "--url", api.URL)
	require.Equal(t, ExitFailed, code)
	require.Equal(t, "dibs: invalid: split: is required, or a list of packets\n", problems)
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// What is shown once must not be lost with exit code 0.
func TestWhatCannotBePrintedIsAFailure(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"version"}, {"version", "-o", "json"}, {"version", "-o", "csv"}, {"token"}, {"grants", "--user", "ann"}, {"config"},
	} {
		var stderr testenv.Buffer
		code := Run(t.Context(), Env{Args: args, Stdout: fullDisk{}, Stderr: &stderr})
		require.Equal(t, ExitFailed, code, args)
		require.Contains(t, stderr.String(), io.ErrShortWrite.Error(), args)
	}
}
