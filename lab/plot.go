package lab

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Plotted is one plot on disk.
type Plotted struct{ File, Title string }

// figure is one plot: a dot a rung for each series.
type figure struct {
	file, title, unit string

	log    bool // the axis; what is 0 is left out then
	series []series
}

type series struct {
	name  string // "" when it is the only one
	value func(*Result) float64
}

// figures of the report, one plot each.
func figures() []figure {
	return []figure{
		{file: "throughput.svg", title: "Claims a second", unit: "claims/s, logarithmic", log: true, series: []series{
			{"", func(r *Result) float64 { return r.ClaimsPerSecond }},
		}},
		{file: "latency.svg", title: "Latency of an accepted claim at full load", unit: "ms, logarithmic", log: true, series: []series{
			{"p50", func(r *Result) float64 { return r.P50Ms }},
			{"p95", func(r *Result) float64 { return r.P95Ms }},
			{"p99", func(r *Result) float64 { return r.P99Ms }},
		}},
		{file: "sold.svg", title: "What the sell-out got wrong, worst round", unit: "units; users", series: []series{
			{"oversold", func(r *Result) float64 { return float64(r.Oversold) }},
			{"undersold", func(r *Result) float64 { return float64(r.Undersold) }},
			{"users over their limit", func(r *Result) float64 { return float64(r.OverLimitUsers) }},
		}},
		{file: "statements.svg", title: "MySQL statements a claim", unit: "statements", series: []series{
			{"", func(r *Result) float64 { return r.Statements }},
		}},
		{file: "redis.svg", title: "Redis CPU a claim", unit: "µs, logarithmic", log: true, series: []series{
			{"", func(r *Result) float64 { return r.RedisMicros }},
		}},
	}
}

// Plot draws every figure into a folder, which is made if need be, in files whose names begin with prefix.
func (r *Report) Plot(folder, prefix string) ([]Plotted, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // documents that all may read
		return nil, fmt.Errorf("lab: plot: %w", err)
	}
	var all []Plotted
	for _, f := range figures() {
		if err := f.draw(r, filepath.Join(folder, prefix+f.file)); err != nil {
			return nil, fmt.Errorf("lab: plot %s: %w", f.file, err)
		}
		all = append(all, Plotted{File: prefix + f.file, Title: f.title})
	}
	return all, nil
}

const (
	plotWidth  = 20 * vg.Centimeter
	plotMargin = 3 * vg.Centimeter
	plotRow    = 0.65 * vg.Centimeter
	dotRadius  = 3
)

func (f *figure) draw(r *Report, file string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = f.title, f.unit
	p.Add(plotter.NewGrid())
	var names []string
	for i := range r.Rungs {
		names = append(names, r.Rungs[i].Title)
	}
	slices.Reverse(names) // the first on top
	p.NominalY(names...)
	drawn := 0
	for i, s := range f.series {
		n, err := f.add(p, r, s, i)
		if err != nil {
			return err
		}
		drawn += n
	}
	rows := float64(len(names))
	if len(f.series) > 1 {
		rows += float64(len(f.series)) // room for the legend
	}
	p.Y.Min, p.Y.Max = -0.5, rows-0.5
	p.Legend.Top, p.Title.Padding = true, plotRow/2
	f.scale(p, drawn > 0)
	return save(p, file, plotMargin+plotRow*vg.Length(rows))
}

// scale sets the horizontal axis, with some room behind the last dot.
func (f *figure) scale(p *plot.Plot, drawn bool) {
	switch {
	case !f.log:
		p.X.Min, p.X.Max = 0, 1.05*max(p.X.Max, 1)
	case drawn:
		p.X.Min, p.X.Max = p.X.Min/1.3, p.X.Max*1.3
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
}

// add puts one series into a plot and returns how many dots it has.
func (f *figure) add(p *plot.Plot, r *Report, s series, nth int) (int, error) {
	var dots plotter.XYs
	for i := range r.Rungs {
		value := s.value(&r.Rungs[i])
		if f.log && value <= 0 {
			continue
		}
		dots = append(dots, plotter.XY{X: value, Y: float64(len(r.Rungs) - 1 - i)})
	}
	if len(dots) == 0 {
		return 0, nil
	}
	scatter, err := plotter.NewScatter(dots)
	if err != nil {
		return 0, err
	}
	scatter.GlyphStyle = glyph(nth)
	p.Add(scatter)
	if s.name != "" {
		p.Legend.Add(s.name, scatter)
	}
	return len(dots), nil
}

// glyph tells the series of a plot apart, by shape and by colour.
func glyph(nth int) draw.GlyphStyle {
	styles := []draw.GlyphStyle{
		{Color: color.RGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff}, Shape: draw.CircleGlyph{}},
		{Color: color.RGBA{R: 0xff, G: 0x7f, B: 0x0e, A: 0xff}, Shape: draw.TriangleGlyph{}},
		{Color: color.RGBA{R: 0xd6, G: 0x27, B: 0x28, A: 0xff}, Shape: draw.SquareGlyph{}},
	}
	style := styles[nth%len(styles)]
	style.Radius = vg.Points(dotRadius)
	return style
}

func save(p *plot.Plot, file string, height vg.Length) (err error) {
	canvas := vgsvg.New(plotWidth, height)
	p.Draw(draw.New(canvas))
	out, err := os.Create(file) //nolint:gosec // the caller names the folder
	if err != nil {
		return err
	}
	defer func() {
		if closed := out.Close(); err == nil {
			err = closed
		}
	}()
	_, err = canvas.WriteTo(out)
	return err
}
