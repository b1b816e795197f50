package shards

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
)

// rushes are the sales of docs/sharding.md.
var rushes = []struct {
	name     string
	heldMost float64 // % until 99 % are sold
	shape    rushShape
}{
	{"even", 1, rushShape{seed: 1, shards: 256, processes: 64, units: 1e7, people: 1e8, arrive: 10_000, skew: 1}},
	{"one shard in 16 has twice the users", 5, rushShape{seed: 1, shards: 256, processes: 64, units: 1e7, people: 1e8, arrive: 10_000, skew: 2}},
}

// TestARushOverManyShards sells ten million units of 256 shards to a hundred million people, by the mover's own rules. DIBS_WRITE=1 puts
// the figures into docs/sharding.md, and draws docs/img/shards.svg.
func TestARushOverManyShards(t *testing.T) {
	t.Parallel()
	table := "| users | sold out after | the last 1 % | moves | claims a move | looks | held until 99 % | answered 503 |\n" +
		"| --- | ---:| ---:| ---:| ---:| ---:| ---:| ---:|\n"
	for i := range rushes {
		r := newRush(rushes[i].shape)
		r.run(60_000)
		require.True(t, r.adds(), "units are in the reserve or on loan")
		require.Equal(t, r.shape.units, r.sold)
		require.GreaterOrEqual(t, r.now, r.soldAt, "no one is told sold out before")
		held := 100 * float64(r.heldThen) / float64(r.shape.units*99/100)
		require.Less(t, held, rushes[i].heldMost, "%% of claims that were held")
		require.LessOrEqual(t, r.soldAt-r.almostAt, 200)
		require.LessOrEqual(t, 500*r.moves, r.shape.units)
		table += fmt.Sprintf("| %s | %d ms | %d ms | %d | %d | %d | %.2f %% | %d |\n", rushes[i].name, r.soldAt, r.soldAt-r.almostAt, r.moves,
			r.shape.units/r.moves, r.looks, held, r.failed)
		if i == 0 && os.Getenv("DIBS_WRITE") != "" {
			require.NoError(t, r.plot("../../docs/img/shards.svg"))
		}
	}
	t.Log("\n" + table)
	if os.Getenv("DIBS_WRITE") == "" {
		return
	}
	const file, first, last = "../../docs/sharding.md", "<!-- figures: rush -->\n", "<!-- end: rush -->"
	doc, err := os.ReadFile(file)
	require.NoError(t, err)
	head, rest, found := strings.Cut(string(doc), first)
	_, tail, ended := strings.Cut(rest, last)
	require.True(t, found && ended, "a place for the figures")
	require.NoError(t, os.WriteFile(file, []byte(head+first+table+last+tail), 0o600))
}

// TestARushOfFewProcessesWaits: what the simulation finds is no matter of course.
func TestARushOfFewProcessesWaits(t *testing.T) {
	t.Parallel()
	shape := rushes[0].shape
	shape.processes = 4
	r := newRush(shape)
	r.run(60_000)
	require.True(t, r.adds())
	require.Equal(t, shape.units, r.sold, "all goes in the end")
	require.Greater(t, 100*r.heldThen, shape.units, "four movers are too few for so many shards: a mover serves one need at a time")
}

// rushPlot is a picture with a row for each thing over the same time.
var rushPlot = template.Must(template.New("rush").Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {{.Height}}" width="760" height="{{.Height}}" font-family="system-ui,sans-serif" font-size="12" role="img">
<title>A rush over 256 shards: units sold, units in the reserve, moves, and claims that are held, over time</title>
<style>text{fill:#24292f}path{fill:none;stroke:#1668b8;stroke-width:2}.line{stroke:#d0d7de}@media(prefers-color-scheme:dark){rect{fill:#0d1117}text{fill:#e6edf3}path{stroke:#5aa7f0}.line{stroke:#33404d}}</style>
<rect width="100%" height="100%" fill="#fff"/>
{{range .Rows}}<text x="16" y="{{.Top}}">{{.Name}}</text><text x="744" y="{{.Top}}" text-anchor="end">at most {{.Most}}</text>
<line class="line" x1="16" x2="744" y1="{{.Base}}" y2="{{.Base}}"/><path d="{{.Path}}"/>
{{end}}<text x="16" y="{{.End}}">0</text><text x="744" y="{{.End}}" text-anchor="end">{{.Last}} ms</text>
</svg>
`))

type rushRow struct {
	Name, Path string
	Most       int64
	Top, Base  int
}

func (r *rush) plot(file string) error {
	const high, gap = 90, 40
	row := func(i int, name string, value func(k int) int64) rushRow {
		one := rushRow{Name: name, Top: 24 + i*(high+gap)}
		one.Base = one.Top + high + 8
		for k := range r.curve {
			one.Most = max(one.Most, value(k))
		}
		var path strings.Builder
		for k := range r.curve {
			x := 16 + 728*float64(k)/float64(len(r.curve)-1)
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(k, 1)], x, float64(one.Base)-float64(high*value(k))/float64(max(1, one.Most)))
		}
		one.Path = path.String()
		return one
	}
	rows := []rushRow{
		row(0, "units sold", func(k int) int64 { return r.curve[k].sold }),
		row(1, "units in the reserve", func(k int) int64 { return r.curve[k].reserve }),
		row(2, "moves within 10 ms", func(k int) int64 { return r.curve[k].moves - r.curve[max(0, k-10)].moves }),
		row(3, "claims that are held", func(k int) int64 { return r.curve[k].held }),
	}
	end := rows[len(rows)-1].Base + 18
	var out strings.Builder
	err := rushPlot.Execute(&out, map[string]any{"Rows": rows, "Height": end + 12, "End": end, "Last": r.curve[len(r.curve)-1].ms})
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(out.String()), 0o600)
}
