package cmd

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"

	"dibs/internal/crowd"
)

// printOutcome shows a demo's outcome, the three accounts of it side by side.
func printOutcome(w io.Writer, t crowd.Tally, b bookFigures) {
	out := NewTable()
	out.AppendHeader(table.Row{"", "the crowd was told", "Redis says", "the database says"})
	out.AppendRow(table.Row{"claims accepted", number(int64(t.Accepted)), number(b.redisSeq), number(b.sqlRows)})
	out.AppendRow(table.Row{"units taken", number(t.Units), number(b.redisTaken), number(b.sqlUnits)})
	out.AppendRow(table.Row{"units left", "", number(b.redisRemaining), number(b.sqlRemaining)})
	out.AppendRow(table.Row{"answered again, same key", number(int64(t.Replayed)), "", ""})
	for _, code := range slices.Sorted(maps.Keys(t.Refused)) {
		out.AppendRow(table.Row{"refused: " + code, number(int64(t.Refused[code])), "", ""})
	}
	if later := t.Unready + t.Unknown; later > 0 {
		out.AppendRow(table.Row{"503 or no answer: asked again", number(int64(later)), "", ""})
	}
	AlignRight(out, 2, 4)
	_, _ = fmt.Fprintf(w, "%s\n\n%s requests in %s; the last claim was in the database %s after the last answer\n", out.Render(),
		number(int64(t.Sent)), t.Took.Round(10*time.Millisecond), b.took.Round(time.Millisecond))
	printShards(w, b)
	wrong := disagreements(t, b)
	if len(wrong) == 0 {
		_, _ = fmt.Fprintln(w, "the books agree")
		return
	}
	_, _ = fmt.Fprintln(w, "THE BOOKS DIFFER")
	for _, line := range wrong {
		_, _ = fmt.Fprintln(w, "  "+line)
	}
}

// printShards shows the shards of a campaign of several, and what moved between them.
func printShards(w io.Writer, b bookFigures) {
	if len(b.shards) == 0 {
		return
	}
	out := NewTable()
	out.AppendHeader(table.Row{"shard", "partition", "units", "claimed", "free", "claims"})
	for i := range b.shards {
		s := &b.shards[i]
		out.AppendRow(table.Row{s.Shard, s.Partition, number(s.Granted), number(s.Claimed), number(s.Free), number(s.Seq)})
	}
	AlignRight(out, 1, 6)
	_, _ = fmt.Fprintf(w, "\n%s\n", out.Render())
	_, _ = fmt.Fprintf(w, "%s moves of %s units between them\n\n", number(b.moves.Moves), number(b.moves.Units))
}

// Number writes 1234567 as 1,234,567.
func Number(n int64) string { return number(n) }

func number(n int64) string { return humanize.Comma(n) }
