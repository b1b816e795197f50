package ops_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"dibs/cmd"
	"dibs/internal/testkit/servetest"
	"dibs/internal/testkit/testenv"
	"dibs/internal/webhooks"
)

func TestMain(m *testing.M) { testenv.Main(m) }

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Annotations map[string]string `yaml:"annotations"`
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	text, err := os.ReadFile("prometheus/rules.yml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

func expressions(t *testing.T) (all []string) {
	t.Helper()
	for _, r := range rules(t) {
		all = append(all, r.Expr)
	}
	boards, err := filepath.Glob("grafana/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, boards)
	for _, path := range boards {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var board struct {
			Panels []struct {
				Targets []struct {
					Expr string `json:"expr"`
				} `json:"targets"`
			} `json:"panels"`
		}
		require.NoError(t, json.Unmarshal(text, &board))
		for _, p := range board.Panels {
			require.NotEmpty(t, p.Targets)
			for _, target := range p.Targets {
				all = append(all, target.Expr)
			}
		}
	}
	return all
}

var (
	fqName = regexp.MustCompile(`fqName: "([^"]+)"`)
	labels = regexp.MustCompile(`variableLabels: \{([^}]*)\}`)
	consts = regexp.MustCompile(`constLabels: \{([^}]*)\}`)
	pair   = regexp.MustCompile(`([a-z_]+)="`)
)

// targets are labels that Prometheus adds to what it scrapes.
var targets = []string{"instance", "namespace", "job"}

// started is a Dibs of all roles that has just started.
func started(t *testing.T) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewRegistry()
	servetest.Serve(t, cmd.Env{Environ: []string{"DIBS_LOG_LEVEL=error"}, Registry: registry})
	return registry
}

// registered are the metrics of all roles, with their labels.
func registered(t *testing.T) map[string][]string {
	t.Helper()
	registry, hooks := started(t), prometheus.NewRegistry()
	// a role that serve lacks
	webhooks.New(webhooks.Config{Registerer: hooks, Logger: slog.New(slog.DiscardHandler)})
	descriptions, all := make(chan *prometheus.Desc), map[string][]string{}
	go func() {
		defer close(descriptions)
		registry.Describe(descriptions)
		hooks.Describe(descriptions)
	}()
	for d := range descriptions {
		name := fqName.FindStringSubmatch(d.String())[1]
		all[name] = append(append(all[name], "le"), targets...)
		if found := labels.FindStringSubmatch(d.String()); found[1] != "" {
			all[name] = append(all[name], strings.Split(found[1], ",")...)
		}
		for _, label := range pair.FindAllStringSubmatch(consts.FindStringSubmatch(d.String())[1], -1) {
			all[name] = append(all[name], label[1])
		}
	}
	return all
}

var (
	selector = regexp.MustCompile(`\b((?:dibs|go)_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouping = regexp.MustCompile(`\bby \(([^)]*)\) \((.*)`)
)

// Otherwise an alert on a missing metric or label never fires.
func TestEveryExpressionIsOfMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	known := registered(t)
	of := func(name string) []string {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, cut := strings.CutSuffix(name, suffix); cut && known[base] != nil {
				return known[base]
			}
		}
		return known[name]
	}
	for _, text := range expressions(t) {
		found := selector.FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, found, text)
		for _, one := range found {
			require.NotNil(t, of(one[1]), "there is no %s: %s", one[1], text)
			for _, label := range matcher.FindAllStringSubmatch(one[2], -1) {
				require.Contains(t, of(one[1]), label[1], text)
			}
		}
		if by := grouping.FindStringSubmatch(text); by != nil {
			metric := selector.FindStringSubmatch(by[2])[1]
			for label := range strings.SplitSeq(by[1], ", ") {
				require.Contains(t, of(metric), label, text)
			}
		}
	}
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("NO PROMTOOL: expressions are not parsed and the cases of the alerts are not tried. `make servers` installs Debian's prometheus; " +
			"elsewhere install Prometheus.")
	}
	said, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	require.NoError(t, err, "%s", said)
}

// Dashboards' expressions are checked as recording rules.
func TestEveryExpressionParses(t *testing.T) {
	t.Parallel()
	type recording struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var all []recording
	for i, text := range expressions(t) {
		all = append(all, recording{fmt.Sprintf("tried:%d", i), text})
	}
	file, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "tried", "rules": all}}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "tried.yml")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	promtool(t, "check", "rules", path)
}

func TestEachAlertHasItsEntryInTheRunbookAndItsCase(t *testing.T) {
	t.Parallel()
	runbook, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	cases, err := os.ReadFile("prometheus/rules_test.yml")
	require.NoError(t, err)
	for _, r := range rules(t) {
		require.Contains(t, string(runbook), "\n## "+r.Alert+"\n")
		require.Equal(t, "docs/runbook.md#"+strings.ToLower(r.Alert), r.Annotations["runbook"])
		require.Contains(t, string(cases), "name: "+r.Alert+" rings\n")
		require.Contains(t, string(cases), "name: "+r.Alert+" is silent\n")
	}
}

// TestAlertsRingWhenTheyShould runs the cases.
func TestAlertsRingWhenTheyShould(t *testing.T) {
	t.Parallel()
	promtool(t, "test", "rules", "prometheus/rules_test.yml")
}

// A counter first exported when it counts has no increase for
// its first count.
func TestEveryCounterOfAnAlertIsThereFromTheStart(t *testing.T) {
	t.Parallel()
	registry := started(t)
	for _, r := range rules(t) {
		for _, found := range selector.FindAllStringSubmatch(r.Expr, -1) {
			if name := found[1]; strings.HasSuffix(name, "_total") {
				require.Eventually(t, func() bool {
					families, err := registry.Gather()
					require.NoError(t, err)
					return slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
				}, time.Minute, 50*time.Millisecond, "%s of %s is not there", name, r.Alert)
			}
		}
	}
}

// The cases must use series that Dibs has: all labels of the
// metric, and besides only Prometheus' own.
func TestCasesAreOfSeriesThatDibsHas(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("prometheus/rules_test.yml")
	require.NoError(t, err)
	var file struct {
		Tests []struct {
			Name   string `yaml:"name"`
			Series []struct {
				Series string `yaml:"series"`
			} `yaml:"input_series"` //nolint:tagliatelle // of promtool
		} `yaml:"tests"`
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	known := registered(t)
	for _, one := range file.Tests {
		for _, series := range one.Series {
			if strings.HasPrefix(series.Series, "up") {
				continue // Prometheus' own
			}
			found := selector.FindStringSubmatch(series.Series)
			require.NotNil(t, found, series.Series)
			require.NotNil(t, known[found[1]], "%s: there is no %s", one.Name, found[1])
			var given []string
			for _, label := range matcher.FindAllStringSubmatch(found[2], -1) {
				given = append(given, label[1])
			}
			require.Subset(t, known[found[1]], given, one.Name)
			for _, label := range known[found[1]] {
				if label != "le" && !slices.Contains(targets, label) {
					require.Contains(t, given, label, "%s: %s", one.Name, series.Series)
				}
			}
		}
	}
}

// Two installations in one Prometheus must not hide each other's problems.
func TestAlertsAreOfAnInstallation(t *testing.T) {
	t.Parallel()
	over := regexp.MustCompile(`\b(?:sum|max|min|count)\b(?: by \(([^)]*)\))?`)
	for _, r := range rules(t) {
		for _, found := range over.FindAllStringSubmatch(r.Expr, -1) {
			require.True(t, strings.HasPrefix(found[1]+",", "namespace, job,"), "%s: %s", r.Alert, found[0])
		}
	}
}

// Log texts quoted in documents must occur in the program.
func TestTheLogsThatDocumentsQuoteAreWritten(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, folder := range []string{"api", "consumer", "finance", "lua", "syncer", "cmd", "internal"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		}))
	}
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	quotes := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, quote := range quotedLogs(string(text)) {
			quotes++
			require.Contains(t, code.String(), quote, "%s says that a log says so", page)
		}
	}
	require.GreaterOrEqual(t, quotes, 4)
}

var logQuote = regexp.MustCompile("(?:[Ll]ogs?|says)(?: of [^.`]*)?(?: says?)? [(`]?`([a-z][^`]* [^`]*)`")

func quotedLogs(text string) (quotes []string) {
	for _, match := range logQuote.FindAllStringSubmatch(strings.ReplaceAll(text, "\n", " "), -1) {
		quotes = append(quotes, match[1])
	}
	return quotes
}
