package lab

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// Plotted is one plot on disk.
type Plotted struct{ File, Title string }

//go:embed plot.svg.tmpl
var plotSource string

// figure is one plot: a dot a strategy for each series, with its value beside it.
type figure struct {
	file, title, unit string

	log    bool // the axis; what is 0 has no dot then
	text   func(float64) string
	series []series
}

type series struct {
	name  string // "" when it is the only one
	value func(*Result) float64
}

// figures of the report, one plot each.
func figures() []figure {
	return []figure{
		{file: "throughput.svg", title: "Claims a second", unit: "claims/s, logarithmic", log: true, text: digits, series: []series{
			{"", func(r *Result) float64 { return r.ClaimsPerSecond }},
		}},
		{file: "latency.svg", title: "Latency of an accepted claim at full load", unit: "ms, logarithmic", log: true, text: digits,
			series: []series{
				{"p50", func(r *Result) float64 { return r.P50Ms }},
				{"p95", func(r *Result) float64 { return r.P95Ms }},
				{"p99", func(r *Result) float64 { return r.P99Ms }},
			}},
		{file: "sold.svg", title: "What the sell-out got wrong, worst round", unit: "units; users", text: whole, series: []series{
			{"oversold", func(r *Result) float64 { return float64(r.Oversold) }},
			{"undersold", func(r *Result) float64 { return float64(r.Undersold) }},
			{"over limit", func(r *Result) float64 { return float64(r.OverLimitUsers) }},
		}},
		{file: "statements.svg", title: "MySQL statements a claim", unit: "statements", text: digits, series: []series{
			{"", func(r *Result) float64 { return r.Statements }},
		}},
		{file: "redis.svg", title: "Redis CPU a claim", unit: "µs, logarithmic", log: true, text: digits, series: []series{
			{"", func(r *Result) float64 { return r.RedisMicros }},
		}},
	}
}

// Plot draws every figure into a folder, which is made if need be, in files whose names begin with prefix.
func (r *Report) Plot(folder, prefix string) ([]Plotted, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // documents that all may read
		return nil, fmt.Errorf("lab: plot: %w", err)
	}
	svg, err := template.New("plot").Parse(plotSource)
	if err != nil {
		return nil, fmt.Errorf("lab: plot: %w", err)
	}
	var all []Plotted
	for _, f := range figures() {
		var text strings.Builder
		err := svg.Execute(&text, f.draw(r))
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, prefix+f.file), []byte(text.String()), 0o644) //nolint:gosec // as above
		}
		if err != nil {
			return nil, fmt.Errorf("lab: plot %s: %w", f.file, err)
		}
		all = append(all, Plotted{File: prefix + f.file, Title: f.title})
	}
	return all, nil
}

// drawing is what the template draws: words, and places in pixels.
type drawing struct {
	Title, Unit   string
	Width, Height int
	Left, Right   int // of everything that has a place
	NameX         int // where names end
	Top, Bottom   int // of the rows
	RowHeight     int
	Columns       []mark
	Rows          []plotRow
	Ticks         []mark
	Wrong         bool // some strategy is
}

type plotRow struct {
	Name              string
	Top, Middle, Base int // of the row, its dots and its words
	Dibs, Wrong       bool
	Dots, Values      []mark
}

// mark is a word, a dot or a line at a place.
type mark struct {
	X           int
	Text, Color string
}

// Places of a drawing, in pixels.
const (
	plotWidth   = 960
	plotBorder  = 16
	plotNames   = 410 // names end here, however wide the reader's font is
	plotTop     = 52
	plotRowHigh = 24
	plotColumn  = 82 // of values
	plotFoot    = 56
)

// colors of the series, each well apart from the others for those who see no red or no green.
var colors = []string{"#0b5cad", "#b85c00", "#5b2a86"}

func (f *figure) draw(r *Report) drawing {
	bottom := plotTop + plotRowHigh*len(r.Results)
	d := drawing{
		Title: f.title, Unit: f.unit, Width: plotWidth, Height: bottom + plotFoot, Left: plotBorder, Right: plotWidth - plotBorder,
		NameX: plotNames, Top: plotTop, Bottom: bottom, RowHeight: plotRowHigh,
	}
	along := newAxis(f.log, f.values(r), plotNames+plotBorder, d.Right-plotColumn*len(f.series)-plotBorder)
	for _, tick := range along.ticks() {
		d.Ticks = append(d.Ticks, mark{X: along.x(tick), Text: tickText(tick)})
	}
	for i, s := range f.series {
		d.Columns = append(d.Columns, mark{X: f.column(i), Text: s.name, Color: colors[i]})
	}
	for i := range r.Results {
		row := f.row(&r.Results[i], along, plotTop+plotRowHigh*i)
		d.Wrong = d.Wrong || row.Wrong
		d.Rows = append(d.Rows, row)
	}
	return d
}

// column is where the values of a series end.
func (f *figure) column(i int) int {
	return plotWidth - plotBorder - plotColumn*(len(f.series)-1-i)
}

func (f *figure) row(res *Result, along axis, top int) plotRow {
	row := plotRow{
		Name: res.Title, Top: top, Middle: top + plotRowHigh/2, Base: top + plotRowHigh/2 + 4, Wrong: res.wrong(),
		Dibs: strings.HasPrefix(res.Name, "dibs-"),
	}
	if row.Wrong {
		row.Name += " – wrong"
	}
	for i, s := range f.series {
		value := s.value(res)
		row.Values = append(row.Values, mark{X: f.column(i), Text: f.text(value), Color: colors[i]})
		if !f.log || value > 0 {
			row.Dots = append(row.Dots, mark{X: along.x(value), Color: colors[i]})
		}
	}
	return row
}

func (f *figure) values(r *Report) []float64 {
	var all []float64
	for i := range r.Results {
		for _, s := range f.series {
			all = append(all, s.value(&r.Results[i]))
		}
	}
	return all
}
