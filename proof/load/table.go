package load

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"dibs/internal/printer"
)

// Table returns the report for people.
func (r *Report) Table() string {
	parts := []string{fmt.Sprintf("campaign %s at %s, servers %s", r.CampaignID, r.URL, r.Servers)}
	if r.Ramp != nil {
		parts = append(parts, rampTable(r.Ramp))
	}
	if r.Ramp == nil || r.Ramp.TopRate > 0 {
		parts = append(parts, benchTable(r), lateWords(r), syncWords(r))
	}
	return strings.Join(append(parts, booksWords(&r.Books)), "\n\n")
}

func rampTable(r *RampReport) string {
	t := printer.NewTable()
	t.AppendHeader(table.Row{"tried/s", "answered/s", "p99 ms", fmt.Sprintf("p99 < %gms", r.P99LimitMS)})
	for _, s := range r.Steps {
		held := "held"
		if !s.Held {
			held = "no: " + s.Reason
		}
		t.AppendRow(table.Row{whole(s.Rate), whole(s.Reached), fmt.Sprintf("%.2f", s.P99MS), held})
	}
	printer.AlignRight(t, 1, 3)
	return t.Render() + fmt.Sprintf("\n\nthe highest rate that held: %s/s", whole(r.TopRate))
}

func benchTable(r *Report) string {
	t := printer.NewTable()
	row := func(name, value string) { t.AppendRow(table.Row{name, value}) }
	row("rate asked for /s", whole(r.Plan.Rate))
	row("rate achieved /s", whole(r.AchievedRate))
	row("sent", printer.Number(r.Sent))
	if r.Unsent > 0 {
		row("never sent", printer.Number(r.Unsent))
	}
	row("accepted", printer.Number(r.Accepted))
	for _, code := range slices.Sorted(maps.Keys(r.Refused)) {
		row("refused: "+code, printer.Number(r.Refused[code]))
	}
	for _, code := range slices.Sorted(maps.Keys(r.Errors)) {
		row("error: "+code, printer.Number(r.Errors[code]))
	}
	l := &r.Latency
	for i, ms := range []float64{l.P50, l.P90, l.P99, l.P999, l.Max} {
		row("latency "+[]string{"p50", "p90", "p99", "p99.9", "max"}[i]+" ms", fmt.Sprintf("%.2f", ms))
	}
	printer.AlignRight(t, 2, 2)
	return t.Render()
}

func lateWords(r *Report) string {
	words := fmt.Sprintf("late sends: %s by the generator itself (at most %.1f ms), "+
		"%s because all %s connections were busy; both count in the latencies",
		printer.Number(r.Late), r.LateMaxMS, printer.Number(r.Waited), printer.Number(r.Plan.Connections))
	if r.Late*100 > r.Sent {
		words += "\nTHE GENERATOR WAS BEHIND ITS SCHEDULE with more than 1 % of the sends: these latencies are also its own"
	}
	return words
}

func syncWords(r *Report) string {
	return fmt.Sprintf("on the way to the database: at most %s claims, the oldest at most %.0f ms old (p99 %.0f ms), in %s polls (%d failed)",
		printer.Number(r.Sync.BacklogMax), r.Sync.AgeMaxMS, r.Sync.AgeP99MS, printer.Number(r.Sync.Polls), r.Sync.PollFaults)
}

func booksWords(b *Books) string {
	if b.Agree {
		return fmt.Sprintf("everything was in the database %.0f ms after the last answer\nthe books agree: %s claims",
			b.SyncedAfterMS, printer.Number(b.Claimed))
	}
	return "THE BOOKS DO NOT AGREE\n  " + strings.Join(b.Wrong, "\n  ")
}

func whole(rate float64) string { return printer.Number(int64(math.Round(rate))) }
