package lab

import (
	"fmt"
	"math"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Table is the report as an aligned table for people, with the lines below.
func (r *Report) Table() string {
	return r.facts() + "\n\n" + r.table().Render() + "\n\n" + r.below("  ")
}

// CSV is the table for programs, with a head.
func (r *Report) CSV() string { return r.table().RenderCSV() + "\n" }

// facts say what the figures were taken on and how.
func (r *Report) facts() string {
	w := r.Workload
	on := strings.Join(append(append([]string(nil), r.Machine...), r.Servers...), ", ")
	return fmt.Sprintf("%s; %s.\n%d connections in %d processes; %s of measuring in each of %d rounds; "+
		"sell-out: %s units, %s users of %d each.", r.At.Format("2006-01-02"), on, w.Connections, w.Processes, w.Duration, w.Rounds,
		whole(float64(w.Units)), whole(float64(w.Users)), w.PerUser)
}

func (r *Report) table() table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{
		"strategy", "claims/s", "Dibs ×", "p50 ms", "p95 ms", "p99 ms", "sell-out/s", "oversold", "undersold", "over limit",
		"lock left", "SQL/claim", "Redis µs/claim",
	})
	var columns []table.ColumnConfig
	for i := 2; i <= 13; i++ {
		columns = append(columns, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	for i := range r.Results {
		t.AppendRow(r.Results[i].row())
	}
	return t
}

func (r *Result) row() table.Row {
	ratio := ""
	if r.DibsRatio > 0 {
		ratio = digits(r.DibsRatio)
	}
	return table.Row{
		r.Title, whole(r.ClaimsPerSecond), ratio, digits(r.P50Ms), digits(r.P95Ms), digits(r.P99Ms),
		whole(r.SellOutRate), whole(float64(r.Oversold)),
		whole(float64(r.Undersold)), whole(float64(r.OverLimitUsers)), r.Lock.String(), digits(r.Statements), digits(r.RedisMicros),
	}
}

// String is for people: nothing, for ever, or until when.
func (l Lock) String() string {
	switch {
	case l.Left == 0 && l.Wedged:
		return "0, wedged"
	case l.Left == 0:
		return "0"
	case l.ForEver:
		return "1, for ever"
	default:
		return fmt.Sprintf("1, for %d s", (l.EndsMs+999)/1000)
	}
}

// below is what stands under the table: the lines, how late the books were, and what went wrong.
func (r *Report) below(bullet string) string {
	var out strings.Builder
	for _, l := range r.Lines {
		verdict := "missed"
		if l.Met {
			verdict = "met"
		}
		fmt.Fprintf(&out, "%s%s: %s, target ≥ %s: %s\n", bullet, l.What, digits(l.Value), digits(l.Target), verdict)
	}
	for i := range r.Results {
		res := &r.Results[i]
		if res.SettledMs >= 1 {
			fmt.Fprintf(&out, "%s%s: MySQL had every claim %s ms after the last answer, at worst\n", bullet, res.Title, whole(res.SettledMs))
		}
		for _, note := range res.notes() {
			fmt.Fprintf(&out, "%s%s: %s\n", bullet, res.Title, note)
		}
	}
	return out.String()
}

func (r *Result) notes() []string {
	var busy, failed int64
	var failure string
	var cut bool
	for i := range r.Rounds {
		one := &r.Rounds[i]
		busy += one.Busy + one.SellOut.Busy
		failed += one.Failed + one.SellOut.Failed
		orDefault(&failure, one.Failure)
		orDefault(&failure, one.SellOut.Failure)
		cut = cut || one.SellOut.Cut
	}
	var notes []string
	if busy > 0 {
		notes = append(notes, whole(float64(busy))+" claims gave up waiting")
	}
	if failed > 0 {
		notes = append(notes, fmt.Sprintf("%s claims failed, the first with: %s", whole(float64(failed)), failure))
	}
	if cut {
		notes = append(notes, fmt.Sprintf("a sell-out was ended after %s", sellOutMax))
	}
	return notes
}

// digits shows three digits that count, and thousands apart.
func digits(v float64) string {
	size := math.Abs(v)
	if size >= 100 {
		return whole(v)
	}
	decimals := 2
	if size >= 10 {
		decimals = 1
	}
	return fmt.Sprintf("%.*f", decimals, v)
}

// whole writes 1234567 as 1,234,567.
func whole(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
