package lab_test

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/proof/lab"
)

// element is one of a plot, with the words in it.
type element struct {
	name  string
	attrs map[string]string
	words string
}

func (e element) number(t *testing.T, attr string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(e.attrs[attr], 64)
	require.NoError(t, err, "%s of %v", attr, e)
	return n
}

// plotted draws a report and returns the elements of one of its plots.
func plotted(t *testing.T, r *lab.Report, file string) []element {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "new", "lab")
	plots, err := r.Plot(folder, "x-")
	require.NoError(t, err)
	require.Len(t, plots, 5)
	text, err := os.ReadFile(filepath.Join(folder, "x-"+file))
	require.NoError(t, err)
	return parse(t, string(text))
}

// parse reads the elements of a plot, in order.
func parse(t *testing.T, text string) (all []element) {
	t.Helper()
	for decoder := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			e := element{name: token.Name.Local, attrs: map[string]string{}}
			for _, a := range token.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			all = append(all, e)
		case xml.CharData:
			if words := strings.TrimSpace(string(token)); words != "" {
				all[len(all)-1].words += words
			}
		}
	}
}

// row is what a plot shows of one strategy.
type row struct {
	name   element
	dots   []element
	values []element
}

// rowsOf reads the rows of a plot, from its top.
func rowsOf(all []element) (rows []row) {
	for _, e := range all {
		switch {
		case e.name == "g":
			rows = append(rows, row{})
		case len(rows) == 0 || e.attrs["dy"] != "":
		case e.name == "circle":
			rows[len(rows)-1].dots = append(rows[len(rows)-1].dots, e)
		case e.name == "text" && rows[len(rows)-1].name.name == "":
			rows[len(rows)-1].name = e
		case e.name == "text":
			rows[len(rows)-1].values = append(rows[len(rows)-1].values, e)
		}
	}
	return rows
}

// wordsOf are the texts of elements.
func wordsOf(all []element) (words []string) {
	for _, e := range all {
		words = append(words, e.words)
	}
	return words
}

// ladderReport has every strategy: read-then-write is wrong, and each is ten times as fast as the one before it, at most.
func ladderReport() lab.Report {
	var r lab.Report
	for i, entry := range lab.Strategies() {
		one := lab.Round{ClaimsPerSecond: float64(100 * (i + 1)), Statements: float64(i) / 2}
		if i == 0 {
			one.SellOut = lab.SellOut{Oversold: 663, OverLimitUsers: 363}
		}
		res := lab.ResultOf(entry, []lab.Round{one}, lab.Lock{})
		res.P50Ms, res.P95Ms, res.P99Ms = 0.4, 20.25, 1_253
		r.Results = append(r.Results, res)
	}
	return r
}

// Names end where the plot begins, whatever font the reader has: they are anchored there and never run into it.
func TestNamesOfAPlotEndBeforeItsAxis(t *testing.T) {
	t.Parallel()
	r := ladderReport()
	for _, file := range []string{"throughput.svg", "latency.svg", "sold.svg", "statements.svg", "redis.svg"} {
		all := plotted(t, &r, file)
		require.Equal(t, "svg", all[0].name)
		width := all[0].number(t, "width")
		require.Equal(t, "0 0 "+all[0].attrs["width"]+" "+all[0].attrs["height"], all[0].attrs["viewBox"])
		rows := rowsOf(all)
		require.Len(t, rows, len(r.Results))
		for i, row := range rows {
			require.True(t, strings.HasPrefix(row.name.words, r.Results[i].Title), "%s at row %d", row.name.words, i)
			require.Equal(t, "end", row.name.attrs["text-anchor"])
			ends := row.name.number(t, "x")
			const widest = 8 // pixels a character, in the widest font of its size
			require.Greater(t, ends, float64(widest*len([]rune(row.name.words))), "%s is cut at the left", row.name.words)
			for _, dot := range row.dots {
				require.Greater(t, dot.number(t, "cx"), ends, file)
				require.Less(t, dot.number(t, "cx"), width)
			}
			for _, value := range row.values {
				require.Equal(t, "end", value.attrs["text-anchor"])
				require.LessOrEqual(t, value.number(t, "x"), width)
				for _, dot := range row.dots {
					require.Greater(t, value.number(t, "x")-60, dot.number(t, "cx"), "%s: a dot lies on a value", file)
				}
			}
		}
	}
}

// extent is from where to where a text goes, in a wide font, and on which line.
func extent(t *testing.T, e element) (line string, from, to float64) {
	t.Helper()
	const wide = 6.5 // pixels a character
	long := wide * float64(len([]rune(e.words)))
	x := e.number(t, "x")
	switch e.attrs["text-anchor"] {
	case "end":
		x -= long
	case "middle":
		x -= long / 2
	}
	return e.attrs["y"] + "+" + e.attrs["dy"], x, x + long
}

func TestNoWordsOfAPlotLieOnOthers(t *testing.T) {
	t.Parallel()
	r := ladderReport()
	for _, file := range []string{"throughput.svg", "latency.svg", "sold.svg", "statements.svg", "redis.svg"} {
		ends := map[string]float64{}
		var texts []element
		for _, e := range plotted(t, &r, file) {
			if e.name == "text" && e.words != "" {
				texts = append(texts, e)
			}
		}
		slices.SortFunc(texts, func(a, b element) int {
			_, one, _ := extent(t, a)
			_, other, _ := extent(t, b)
			return cmp.Compare(one, other)
		})
		for _, e := range texts {
			line, from, to := extent(t, e)
			require.GreaterOrEqual(t, from, ends[line], "%s of %s lies on another", e.words, file)
			ends[line] = to
		}
	}
}

func TestAPlotWritesEveryValue(t *testing.T) {
	t.Parallel()
	r := ladderReport()
	values := func(file string, entry int) []string { return wordsOf(rowsOf(plotted(t, &r, file))[entry].values) }
	require.Equal(t, []string{"100"}, values("throughput.svg", 0))
	require.Equal(t, []string{"1,000"}, values("throughput.svg", 9))
	require.Equal(t, []string{"1,700"}, values("throughput.svg", 16))
	require.Equal(t, []string{"0.40", "20.2", "1,253"}, values("latency.svg", 3))
	require.Equal(t, []string{"663", "0", "363"}, values("sold.svg", 0))
	require.Equal(t, []string{"0", "0", "0"}, values("sold.svg", 1))
	require.Equal(t, []string{"2.50"}, values("statements.svg", 5))
	require.Equal(t, []string{"0.00"}, values("redis.svg", 0))
}

// Values stand in columns under the name of their series, in its colour, which its dots have, too.
func TestValuesStandUnderTheNameOfTheirSeries(t *testing.T) {
	t.Parallel()
	r := ladderReport()
	for file, names := range map[string][]string{
		"latency.svg": {"p50", "p95", "p99"}, "sold.svg": {"oversold", "undersold", "over limit"},
	} {
		all := plotted(t, &r, file)
		var heads []element
		for _, e := range all {
			if e.name == "text" && e.attrs["text-anchor"] == "end" && e.attrs["y"] == "44" {
				heads = append(heads, e)
			}
		}
		require.Equal(t, names, wordsOf(heads))
		for _, row := range rowsOf(all) {
			for i, value := range row.values {
				require.Equal(t, heads[i].attrs["x"], value.attrs["x"])
				require.Equal(t, heads[i].attrs["fill"], value.attrs["fill"])
			}
		}
		colors := map[string]bool{}
		for _, dot := range rowsOf(all)[0].dots {
			colors[dot.attrs["stroke"]] = true
		}
		require.Len(t, colors, len(names))
	}
}

// A strategy that sold wrong is named so, in words and not by colour alone, in every plot: a rate that is wrong is no rate.
func TestWrongStrategiesAreMarkedInEveryPlot(t *testing.T) {
	t.Parallel()
	for name, sold := range map[string]lab.SellOut{
		"oversold": {Oversold: 1}, "undersold": {Undersold: 1}, "over limit": {OverLimitUsers: 1}, "": {Sold: 300},
	} {
		round := lab.Round{ClaimsPerSecond: 5, SellOut: sold}
		good, _ := lab.StrategyNamed("watch")
		r := lab.Report{Results: []lab.Result{
			lab.ResultOf(good, []lab.Round{{ClaimsPerSecond: 7}}, lab.Lock{}),
			lab.ResultOf(lab.Strategies()[0], []lab.Round{round}, lab.Lock{}),
		}}
		for _, file := range []string{"throughput.svg", "latency.svg", "sold.svg", "statements.svg", "redis.svg"} {
			all := plotted(t, &r, file)
			rows := rowsOf(all)
			require.NotContains(t, rows[0].name.words, "wrong")
			require.Equal(t, name != "", strings.HasSuffix(rows[1].name.words, "wrong"), "%s in %s", name, file)
			require.Equal(t, name != "", rows[1].name.attrs["fill"] != "", "and in a colour of its own")
			require.Equal(t, name != "", strings.Contains(strings.Join(wordsOf(all), "\n"), "wrong:"), "it is said what that means")
			for _, dot := range rows[1].dots {
				require.Equal(t, name != "", dot.attrs["fill"] == "#fff", "hollow")
			}
		}
	}
}

func TestDibsStandsOut(t *testing.T) {
	t.Parallel()
	r := ladderReport()
	all := plotted(t, &r, "throughput.svg")
	bands := map[string]bool{}
	for _, e := range all {
		if e.name == "rect" && e.attrs["y"] != "" {
			bands[e.attrs["y"]] = true
		}
	}
	dibs := 0
	for i, row := range rowsOf(all) {
		ours := strings.HasPrefix(r.Results[i].Name, "dibs-")
		require.Equal(t, ours, row.name.attrs["font-weight"] == "bold", r.Results[i].Name)
		top := row.name.number(t, "y") - 16
		require.Equal(t, ours, bands[strconv.Itoa(int(top))], "a band behind it alone: %s", r.Results[i].Name)
		require.Equal(t, ours, row.dots[0].number(t, "r") > 4)
		if ours {
			dibs++
		}
	}
	require.Equal(t, 2, dibs)
	require.Len(t, bands, 2)
}

// What is 0 has no place on a logarithmic axis: it is written, and has no dot.
func TestNothingHasNoDotOnALogarithmicAxis(t *testing.T) {
	t.Parallel()
	r := ladderReport()
	for _, row := range rowsOf(plotted(t, &r, "redis.svg")) {
		require.Empty(t, row.dots)
		require.Equal(t, []string{"0.00"}, wordsOf(row.values))
	}
	for _, row := range rowsOf(plotted(t, &r, "sold.svg")) {
		require.Len(t, row.dots, 3, "a linear axis begins with it")
	}
	require.Empty(t, rowsOf(plotted(t, &lab.Report{}, "throughput.svg")), "a report of nothing can be drawn")
}

func TestMoreIsFurtherToTheRight(t *testing.T) {
	t.Parallel()
	r := ladderReport()
	for _, file := range []string{"throughput.svg", "statements.svg"} {
		before := 0.0
		for _, row := range rowsOf(plotted(t, &r, file)) {
			x := row.dots[0].number(t, "cx")
			require.Greater(t, x, before, file)
			before = x
		}
	}
	dots := rowsOf(plotted(t, &r, "latency.svg"))[0].dots
	require.Less(t, dots[0].number(t, "cx"), dots[1].number(t, "cx"))
	require.Less(t, dots[1].number(t, "cx"), dots[2].number(t, "cx"))
}

func TestTitlesAreEscaped(t *testing.T) {
	t.Parallel()
	r := lab.Report{Results: []lab.Result{{Name: "x", Title: `a < b & "c"`, ClaimsPerSecond: 1}}}
	require.Equal(t, `a < b & "c"`, rowsOf(plotted(t, &r, "throughput.svg"))[0].name.words)
}

func TestAFolderThatCannotBeMadeIsTold(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := (&lab.Report{}).Plot(filepath.Join(file, "lab"), "")
	require.ErrorContains(t, err, file)
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "x-throughput.svg"), 0o700))
	_, err = (&lab.Report{}).Plot(folder, "x-")
	require.ErrorContains(t, err, "throughput.svg")
}

// TestThePublishedPlotsShowTheFiguresBesideThem: each plot of docs/lab.md has the values of its table, strategy for strategy.
func TestThePublishedPlotsShowTheFiguresBesideThem(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/lab.md")
	require.NoError(t, err)
	parts := 0
	for _, part := range strings.Split(string(page), "<!-- figures: ")[1:] {
		name, rest, _ := strings.Cut(part, " -->")
		body, _, _ := strings.Cut(rest, "<!-- end: ")
		for file, columns := range map[string][]int{"throughput": {1}, "latency": {3, 4, 5}, "sold": {7, 8, 9}, "statements": {11}, "redis": {12}} {
			require.Contains(t, body, "(lab/"+name+"-"+file+".svg)")
			svg, err := os.ReadFile("../../docs/lab/" + name + "-" + file + ".svg")
			require.NoError(t, err)
			rows := rowsOf(parse(t, string(svg)))
			table := figuresOf(t, "../../docs/lab/"+name+".csv")
			require.Len(t, rows, len(table), "%s-%s", name, file)
			for i, cells := range table {
				require.Equal(t, cells[0], strings.TrimSuffix(rows[i].name.words, " – wrong"))
				require.Equal(t, cells[7]+cells[8]+cells[9] != "000", strings.HasSuffix(rows[i].name.words, " – wrong"), cells[0])
				var want []string
				for _, c := range columns {
					want = append(want, cells[c])
				}
				require.Equal(t, want, wordsOf(rows[i].values), "%s of %s-%s", cells[0], name, file)
			}
		}
		parts++
	}
	require.Equal(t, 3, parts)
}

// figuresOf reads the figures that Publish wrote, without their head.
func figuresOf(t *testing.T, file string) [][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	require.NoError(t, err)
	return rows[1:]
}
