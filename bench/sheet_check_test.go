package bench_test

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 2, median([]float64{9, 1, 2}), 0)
	require.InDelta(t, 2.5, median([]float64{9, 1, 2, 3}), 0)
}

func TestDigits(t *testing.T) {
	t.Parallel()
	for v, shown := range map[float64]string{0: "0.000", 0.0512: "0.051", 0.6123: "0.612", 1.7: "1.70", 17.04: "17.0", 999: "999", 1234.4: "1,234", 1234567: "1,234,567"} {
		require.Equal(t, shown, digits(v))
	}
}

func TestRatioIsTakenRoundByRound(t *testing.T) {
	t.Parallel()
	s := newSheet("x", "", 2)
	for _, slow := range []float64{1, 10} { // a machine ten times slower in one round changes no ratio
		s.add("over", "/s", 400/slow)
		s.add("under", "/s", 100/slow)
	}
	s.ratio(t, "r", "over", "under", 4)
	s.ratio(t, "q", "over", "under", 4.1)
	require.Equal(t, []float64{4, 4}, s.Ratios[0].Values)
	require.Equal(t, "met", s.Ratios[0].verdict())
	require.Equal(t, "missed", s.Ratios[1].verdict())
}

func TestTakeTurnsAlternates(t *testing.T) {
	t.Parallel()
	var order string
	s := newSheet("x", "", 3)
	s.takeTurns([]func(){func() { order += "a" }, func() { order += "b" }})
	require.Equal(t, "abbaab", order)
}

func TestWriteDocTouchesOnlyThePartsThatRan(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "doc.md")
	const doc = "# T\n<!-- figures: summary -->\n<!-- end: summary -->\n<!-- figures: a -->\nold a\n<!-- end: a -->\nwords\n<!-- figures: b -->\nold b\n<!-- end: b -->\nend\n"
	require.NoError(t, os.WriteFile(file, []byte(doc), 0o600))
	s := newSheet("b", "", 1)
	s.add("figure", "/s", 12345)
	picture := filepath.Join(t.TempDir(), "plot.svg")
	require.NoError(t, writeDoc(file, picture, []*sheet{s}))
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(got), "old a\n<!-- end: a -->\nwords\n<!-- figures: b -->\n")
	require.NotContains(t, string(got), "old b")
	require.Contains(t, string(got), "12,345")
	require.Error(t, writeDoc(file, picture, []*sheet{newSheet("c", "", 1)}), "a part without a place")
}

func TestDocHasAPlaceForEveryPart(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(docFile)
	require.NoError(t, err)
	for _, part := range parts {
		_, err := between(string(doc), part.name, "")
		require.NoError(t, err)
	}
}

// The summary has what has a target, of every part that the document has figures of, and the picture as many bars.
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
	all := goals("<!-- figures: script -->\n" + s.markdown() + "<!-- end: script -->\n")
	require.Equal(t, []goal{
		{"script", "fast / slow", "3.00", "3.00", "3.00", "≥ 4.00", "missed", 0.75},
		{"script", "slow / fast", "0.333", "0.333", "0.333", "≤ 0.500", "met", 0.5 / 0.333},
		{"script", "idle", "7.00", "7.00", "7.00", "≤ 5.00 % of a core", "missed", 5.0 / 7},
	}, all)
	require.Contains(t, summary(all), "1 of 3 targets are met.")
	svg, err := plot(all)
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(svg, `height="12"`))
	require.NoError(t, xml.Unmarshal([]byte(svg), new(any)))
}
