package lab

import (
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// targets are the speed-ups expected of Dibs over HTTP.
var targets = map[string]float64{"lock-per-coupon": 50, "lua-update": 10, "for-update": 10}

// Table returns the report as a table for people, with notes.
func (r *Report) Table() string {
	return r.facts() + "\n\n" + r.table().Render() + "\n\n" + r.notes("  ")
}

// Markdown returns docs/lab.md's part of the report.
func (r *Report) Markdown() string {
	return r.facts() + "\n\n" + r.notes("- ") + "\n" + r.table().RenderMarkdown()
}

// facts describe how the figures were measured.
func (r *Report) facts() string {
	w := r.Workload
	return fmt.Sprintf("%s; %s, %s.\n%d connections in %d processes; %s of measuring in each of %d rounds; "+
		"sell-out: %s units, %s users of 1 each.", r.At.Format("2006-01-02"),
		strings.Join(r.Machine, ", "), strings.Join(r.Servers, ", "), w.Connections, w.Processes,
		w.Duration, w.Rounds, humanize.Comma(w.Units), humanize.Comma(int64(w.Users)))
}

func (r *Report) table() table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{
		"strategy", "claims/s", "Dibs ×", "p50 ms", "p95 ms", "p99 ms", "sell-out/s", "oversold",
		"undersold", "over limit", "lock left", "SQL/claim", "Redis µs/claim",
	})
	var columns []table.ColumnConfig
	for i := 2; i <= 13; i++ {
		columns = append(columns, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	for i := range r.Results {
		res := &r.Results[i]
		title := res.Title
		if res.wrong() {
			title += " – wrong"
		}
		ratio := ""
		if res.DibsRatio > 0 {
			ratio = digits(res.DibsRatio)
		}
		t.AppendRow(table.Row{
			title, whole(res.ClaimsPerSecond), ratio, digits(res.P50Ms), digits(res.P95Ms), digits(res.P99Ms),
			whole(res.SellOutRate), humanize.Comma(res.Oversold), humanize.Comma(res.Undersold),
			humanize.Comma(res.OverLimitUsers), res.Lock, digits(res.Statements), digits(res.RedisMicros),
		})
	}
	return t
}

// notes are ratios with targets, MySQL's lag, and failures.
func (r *Report) notes(bullet string) string {
	var ratios, rest strings.Builder
	for i := range r.Results {
		res := &r.Results[i]
		if target, ok := targets[res.Name]; ok && res.DibsRatio > 0 {
			verdict := "missed"
			if res.DibsRatio >= target {
				verdict = "met"
			}
			fmt.Fprintf(&ratios, "%sDibs over HTTP / %s: %s, target ≥ %s: %s\n", bullet, res.Title,
				digits(res.DibsRatio), digits(target), verdict)
		}
		note := func(yes bool, f string, args ...any) {
			if yes {
				fmt.Fprintf(&rest, bullet+res.Title+": "+f+"\n", args...)
			}
		}
		note(res.SettledMs >= 1, "MySQL had every claim %s ms after the last answer, at worst", whole(res.SettledMs))
		note(res.Busy > 0, "%s claims gave up waiting", humanize.Comma(res.Busy))
		note(res.Failed > 0, "%s claims failed, the first with: %s", humanize.Comma(res.Failed), res.Failure)
		note(res.Cut, "a sell-out was ended after %s", sellOutMax)
	}
	return ratios.String() + rest.String()
}

// digits shows three significant digits, with thousands separated.
func digits(v float64) string {
	switch {
	case v >= 100:
		return whole(v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// whole writes 1234567.3 as 1,234,567.
func whole(v float64) string { return humanize.Comma(int64(math.RoundToEven(v))) }
