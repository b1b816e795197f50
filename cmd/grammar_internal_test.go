package cmd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"dibs/internal/config"
	"dibs/internal/testenv"
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

func wordsOf(c *cobra.Command) []string { return strings.Fields(c.CommandPath())[1:] }

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
		require.NotContains(t, c.UsageString()+c.Long+c.Short+c.Example, "--json", c.CommandPath())
		require.Equal(t, "json", formAfter(t, wordsOf(c), "--json"))
		require.Equal(t, "csv", formAfter(t, wordsOf(c), "-ocsv"))
	}
}

func formAfter(t *testing.T, words []string, flag string) string {
	t.Helper()
	c, _, err := newRoot(Env{}).Find(words)
	require.NoError(t, err)
	require.NoError(t, c.ParseFlags([]string{flag}))
	return c.Flags().Lookup("output").Value.String()
}

func TestAMisspelledFlagIsSuggestedWithTheUsage(t *testing.T) {
	t.Parallel()
	for _, c := range everyCommand(newRoot(Env{})) {
		if c.DisableFlagParsing || c.Name() == "help" {
			continue
		}
		first := ""
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if first == "" && !f.Hidden && !config.IsSetting(f) {
				first = f.Name
			}
		})
		if first == "" {
			first = "redis-url"
		}
		letters := []byte(first)
		if len(letters) > 2 && letters[1] != letters[2] {
			letters[1], letters[2] = letters[2], letters[1]
		} else {
			letters = append(letters, 'x')
		}
		code, out, problems := runIn(t, nil, append(wordsOf(c), "--"+string(letters))...)
		require.Equal(t, ExitUsage, code, problems)
		require.Empty(t, out)
		require.Equal(t, fmt.Sprintf("dibs: unknown flag --%s: did you mean --%s? Usage: %s\n", letters, first, c.UseLine()), problems)
	}
}

func TestAMisspelledCommandIsSuggested(t *testing.T) {
	t.Parallel()
	for _, c := range everyCommand(newRoot(Env{})) {
		if c.Parent().CommandPath() == "dibs completion" {
			continue
		}
		words := wordsOf(c)
		words[len(words)-1] += "x"
		code, _, problems := runIn(t, nil, append(words, "-o", "json")...)
		require.Equal(t, ExitUsage, code)
		printed := refused(t, problems)
		require.Equal(t, "usage", printed.Code)
		require.Contains(t, printed.Message, fmt.Sprintf("did you mean %q? Usage: %s COMMAND", c.Name(), c.Parent().CommandPath()))
	}
}

func refused(t *testing.T, problems string) refusal {
	t.Helper()
	require.Equal(t, 1, strings.Count(problems, "\n"), problems)
	var printed struct{ Error refusal }
	require.NoError(t, json.Unmarshal([]byte(problems), &printed), problems)
	return printed.Error
}

// overHTTPs are the first examples of the commands that call the API.
func overHTTPS(root *cobra.Command) (all [][]string) {
	for _, name := range []string{"campaign", "groups", "packets"} {
		family, _, _ := root.Find([]string{name})
		for _, c := range family.Commands() {
			all = append(all, exampleOf(c))
		}
	}
	for _, name := range []string{"claim", "redeem", "release", "reopen", "extend", "settlement", "claims", "ledger"} {
		c, _, _ := root.Find([]string{name})
		all = append(all, exampleOf(c))
	}
	return append(all, []string{"watch", "spring", "--once"})
}

func exampleOf(c *cobra.Command) []string {
	line, _, _ := strings.Cut(strings.ReplaceAll(firstExample(c), "'paid too late'", "late"), " -o ")
	return strings.Fields(line)[1:]
}

func TestEveryCommandOverHTTPNamesTheFlagAndTheVariable(t *testing.T) {
	t.Parallel()
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"code":"unauthorized","status":401,"detail":"Who are you?","field":"token"}`))
	}))
	t.Cleanup(gate.Close)
	examples := overHTTPS(newRoot(Env{}))
	require.Greater(t, len(examples), 15)
	for _, args := range examples {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			code, _, problems := runIn(t, nil, append(args, "--url", "nonsense")...)
			require.Equal(t, ExitUsage, code)
			require.Contains(t, problems, "--url or DIBS_URL")
			code, out, problems := runIn(t, []string{"DIBS_URL=" + gate.URL}, append(args, "-o", "json")...)
			require.Equal(t, ExitFailed, code)
			require.Empty(t, out)
			printed := refused(t, problems)
			require.Equal(t, []string{"unauthorized", "Who are you?", "token"}, []string{printed.Code, printed.Detail, printed.Field})
			require.Contains(t, printed.Message, "--token or DIBS_TOKEN")
		})
	}
	_, _, problems := runIn(t, []string{"DIBS_URL=" + gate.URL}, examples[0]...)
	require.True(t, strings.HasPrefix(problems, "dibs: unauthorized: Who are you?"), problems)
	for _, args := range [][]string{examples[0], {"watch", "spring", "--once"}} {
		code, out, problems := runIn(t, []string{"DIBS_URL=http://127.0.0.1:1"}, args...)
		require.Equal(t, ExitFailed, code)
		require.Empty(t, out)
		require.Contains(t, problems, "127.0.0.1:1")
		require.Contains(t, problems, "--url or DIBS_URL")
		require.NotRegexp(t, `\b(cmd|client|usage): `, problems)
	}
}

// The error must name what is missing, and its example must have it.
func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range everyCommand(newRoot(Env{})) {
		_, takes, _ := strings.Cut(c.Use, " ")
		if takes == "" || strings.Contains(takes, "[") || strings.Contains(takes, "|") {
			continue
		}
		code, _, problems := runIn(t, nil, wordsOf(c)...)
		require.Equal(t, ExitUsage, code)
		require.Equal(t, fmt.Sprintf("dibs: %s is missing, such as `%s`\n", takes, firstExample(c)), problems)
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Annotations[cobra.BashCompOneRequiredFlag] != nil {
				_, _, problems := runIn(t, nil, append(wordsOf(c), "x")...)
				require.Contains(t, problems, "dibs: --"+f.Name+" is missing, such as `")
				require.Contains(t, firstExample(c), "--"+f.Name+" ")
			}
		})
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
		"campaign get sp": "spring\nsports\n", "claim sp": "spring\nsports\n", "ledger sp": "spring\nsports\n",
		"reconcile --campaign sp": "spring\nsports\n", "groups remove a": "audit\n", "webhooks test s": "shop\n",
		"webhooks replay --endpoint s": "shop\n", "audit -o t": "table\njson\ncsv\n", "campaign create sp": "",
	} {
		_, out, _ := runIn(t, over, append([]string{"__complete"}, strings.Fields(line)...)...)
		require.Equal(t, want+":4\n", out, line)
	}
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(slow.Close)
	for _, url := range []string{slow.URL, "http://127.0.0.1:1", "nonsense"} {
		start := time.Now()
		_, out, problems := runIn(t, []string{"DIBS_URL=" + url}, "__complete", "campaign", "get", "sp")
		require.Equal(t, ":4\n", out)
		require.NotContains(t, problems, "dibs:")
		require.Less(t, time.Since(start), 5*time.Second)
	}
}
