package bench_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

// plotFile is the picture at the top of docs/bench.md.
const plotFile = "../../docs/img/bench.svg"

// goal is a line of the summary: a figure with a target.
type goal struct {
	Part, Name, Median, Least, Most, Target, Verdict string

	share float64 // reached share of the target: 1 and more is met
}

// lines are all ratios and all figures with a target, in the
// order of the parts.
func lines(results map[string]*sheet) (all []goal) {
	for _, part := range parts {
		s := results[part.name]
		if s == nil {
			continue
		}
		for _, r := range s.Ratios {
			g := goal{Part: part.name, Name: r.Name, Median: digits(median(r.Values)), Least: digits(slices.Min(r.Values)), Most: digits(slices.Max(r.Values))}
			if r.Side != "" {
				g.Target = r.wanted()
				g.Verdict = r.verdict()
				g.share = shareOf(r.Side, median(r.Values), r.Target)
			}
			all = append(all, g)
		}
	}
	return all
}

// withTarget returns the lines with a target, or those without.
func withTarget(all []goal, has bool) []goal {
	return slices.DeleteFunc(slices.Clone(all), func(g goal) bool { return (g.Target != "") != has })
}

// shareOf is the reached share of a target. It is inverted for
// figures that should be small.
func shareOf(is side, median, target float64) float64 {
	switch {
	case is == atLeast:
		return median / target
	case median <= target:
		return max(1, target/max(median, 1e-9))
	default:
		return target / median
	}
}

// summary is the table of all targets, that of other
// comparisons, and the CPU time by cause.
func summary(results map[string]*sheet) string {
	all := lines(results)
	t := newTable("part", "what", "median", "least", "most", "target", "")
	met := 0
	targets := withTarget(all, true)
	for _, g := range targets {
		if g.Verdict == "met" {
			met++
		}
		t.AppendRow([]any{g.Part, g.Name, g.Median, g.Least, g.Most, g.Target, g.Verdict})
	}
	floors := newTable("part", "what", "median", "least", "most")
	for _, g := range withTarget(all, false) {
		floors.AppendRow([]any{g.Part, g.Name, g.Median, g.Least, g.Most})
	}
	narrow := strings.NewReplacer(" | ", "|", "| ", "|", " |", "|")
	return fmt.Sprintf("%d of %d targets are met, on two cores that servers, clients and load share.\n\n"+
		"![What each part reached of its targets: a bar to the line or past it is met](img/bench.svg)\n\n%s\n\n"+
		"Physical floors, and what Dibs is compared with. These have no target:\n\n%s\n\n"+
		"Where the processor time goes, in µs a claim, of which the first rows are the machine's and net/http's:\n\n%s\n",
		met, len(targets), narrow.Replace(t.RenderMarkdown()), narrow.Replace(floors.RenderMarkdown()), narrow.Replace(spentTable(results["causes"])))
}

// plotSVG draws a bar for each goal, on a logarithmic scale; the
// line is the target.
var plotSVG = template.Must(template.New("bench").Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" width="{{.Width}}" height="{{.Height}}" font-family="system-ui,sans-serif" font-size="12" role="img">
<title>What each part of the benchmark reached of its targets</title>
<style>text{fill:#24292f}.met{fill:#1a7f37}.missed{fill:#bc4c00}.line{stroke:#57606a}@media(prefers-color-scheme:dark){rect.back{fill:#0d1117}text{fill:#e6edf3}.met{fill:#3fb950}.missed{fill:#f0883e}.line{stroke:#9198a1}}</style>
<rect class="back" width="100%" height="100%" fill="#fff"/>
<text x="16" y="24" font-size="15">What each part reached of its target (median; a bar to the line or past it is met)</text>
{{range .Ticks}}<text x="{{.X}}" y="46" text-anchor="middle">{{.Text}}</text>
{{end}}{{range .Rows}}<text x="{{$.Left}}" dx="-8" y="{{.Base}}" text-anchor="end">{{.Name}}</text><rect class="{{.Class}}" x="{{$.Left}}" y="{{.Top}}" width="{{.Wide}}" height="12"/><text x="{{.End}}" y="{{.Base}}">{{.Value}}</text>
{{end}}<line class="line" x1="{{.One}}" x2="{{.One}}" y1="50" y2="{{.Height}}" stroke-dasharray="4 3"/>
</svg>
`))

type plotRow struct {
	Name, Class, Value   string
	Base, Top, Wide, End int
}

type plotTick struct {
	X    int
	Text string
}

// Layout of the plot, in pixels. The scale is from an eighth of
// the target to twice it.
const (
	plotLeft, plotSpan, plotValues, plotRowHigh = 520, 320, 240, 20
	plotLeast, plotMost                         = 1.0 / 8, 2.0
)

func plotAt(share float64) int {
	share = min(max(share, plotLeast), plotMost)
	return int(plotSpan * math.Log2(share/plotLeast) / math.Log2(plotMost/plotLeast))
}

func plot(all []goal) (string, error) {
	view := struct {
		Width, Height, Left, One int
		Ticks                    []plotTick
		Rows                     []plotRow
	}{plotLeft + plotSpan + plotValues, 64 + plotRowHigh*len(all), plotLeft, plotLeft + plotAt(1), nil, nil}
	for _, share := range []float64{0.125, 0.25, 0.5, 1, 2} {
		view.Ticks = append(view.Ticks, plotTick{plotLeft + plotAt(share), fmt.Sprintf("%g ×", share)})
	}
	for i, g := range all {
		base := 68 + plotRowHigh*i
		name := g.Part + ": " + g.Name
		if runes := []rune(name); len(runes) > 82 {
			name = string(runes[:81]) + "…"
		}
		wide := max(1, plotAt(g.share))
		view.Rows = append(view.Rows, plotRow{
			template.HTMLEscapeString(name), g.Verdict, template.HTMLEscapeString(g.Median + "  (wanted " + g.Target + ")"),
			base, base - 10, wide, plotLeft + wide + 8,
		})
	}
	var out strings.Builder
	err := plotSVG.Execute(&out, view)
	return out.String(), err
}

// writeSummary updates docs/bench.md's summary and its picture.
func writeSummary(doc, picture string, results map[string]*sheet) error {
	svg, err := plot(withTarget(lines(results), true))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(picture), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(picture, []byte(svg), 0o644); err != nil {
		return err
	}
	old, err := os.ReadFile(doc)
	if err != nil {
		return err
	}
	text, err := between(string(old), "summary", summary(results))
	if err != nil {
		return fmt.Errorf("%s: %w", doc, err)
	}
	return os.WriteFile(doc, []byte(text), 0o644)
}
