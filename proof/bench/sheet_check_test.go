package bench_test

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRatioIsTakenRoundByRound(t *testing.T) {
	t.Parallel()
	s := newSheet("x", "", 2)
	// a machine ten times slower in one round changes no ratio
	for _, slow := range []float64{1, 10} {
		s.add("over", "/s", 400/slow)
		s.add("under", "/s", 100/slow)
	}
	s.ratio(t, "r", "over", "under", 4)
	s.ratio(t, "q", "over", "under", 4.1)
	require.Equal(t, []float64{4, 4}, s.Ratios[0].Values)
	require.Equal(t, "met", s.Ratios[0].verdict())
	require.Equal(t, "missed", s.Ratios[1].verdict())
}

func TestRecordKeepsThePartsThatDidNotRun(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	doc, results, picture := filepath.Join(folder, "doc.md"), filepath.Join(folder, "results.json"), filepath.Join(folder, "plot.svg")
	require.NoError(t, os.WriteFile(doc, []byte("# T\n<!-- figures: summary -->\nwhat was there\n<!-- end: summary -->\nend\n"), 0o600))
	require.NoError(t, os.WriteFile(results, []byte("{}"), 0o600))
	for part, value := range map[string]float64{"http": 12345, "books": 67890} {
		s := newSheet(part, "", 1)
		s.add("figure", "/s", value)
		s.goal(t, "figure", atLeast, 20000)
		require.NoError(t, record(results, doc, picture, []*sheet{s}))
	}
	got, err := os.ReadFile(doc)
	require.NoError(t, err)
	for _, text := range []string{"12,345", "67,890", "1 of 2 targets are met", "<!-- end: summary -->\nend\n"} {
		require.Contains(t, string(got), text)
	}
	require.NotContains(t, string(got), "what was there")
}

// docs/bench.md's summary must be that of the results.
func TestDocHasTheResultsAndEveryPart(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(docFile)
	require.NoError(t, err)
	text, err := os.ReadFile(resultsFile)
	require.NoError(t, err)
	results := make(map[string]*sheet)
	require.NoError(t, json.Unmarshal(text, &results))
	if os.Getenv("DIBS_WRITE") != "" { // targets have changed
		require.NoError(t, writeSummary(docFile, plotFile, results))
		doc, err = os.ReadFile(docFile)
		require.NoError(t, err)
	}
	require.Contains(t, string(doc), summary(results))
	for _, part := range parts {
		require.Contains(t, string(doc), "| `"+part.name+"` |")
	}
}

// The summary must have all targets of the document's parts, and
// the picture as many bars.
func TestSummaryHasEveryTarget(t *testing.T) {
	t.Parallel()
	s := newSheet("script", "", 1)
	s.add("fast", "/s", 300)
	s.add("slow", "/s", 100)
	s.add("idle", "% of a core", 7)
	s.ratio(t, "fast / slow", "fast", "slow", 4)
	s.ratioAtMost(t, "slow / fast", "slow", "fast", 0.5)
	s.ratio(t, "without a target", "slow", "fast", 0)
	s.goal(t, "idle", atMost, 5)
	results := map[string]*sheet{"script": s}
	all := lines(results)
	require.Equal(t, []goal{
		{"script", "fast / slow", "3.00", "3.00", "3.00", "≥ 4.00", "missed", 0.75},
		{"script", "slow / fast", "0.333", "0.333", "0.333", "≤ 0.500", "met", 1.5},
		{"script", "idle", "7.00", "7.00", "7.00", "≤ 5.00 % of a core", "missed", 5.0 / 7},
	}, withTarget(all, true))
	require.Equal(t, []goal{{"script", "without a target", "0.333", "0.333", "0.333", "", "", 0}}, withTarget(all, false))
	require.Contains(t, summary(results), "1 of 3 targets are met")
	require.Contains(t, summary(results), "|script|without a target|")
	svg, err := plot(withTarget(all, true))
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(svg, `height="12"`))
	require.NoError(t, xml.Unmarshal([]byte(svg), new(any)))
}
