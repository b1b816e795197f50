package cmd

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"dibs/internal/crowd"
)

// printOutcome shows a demo's outcome, the three accounts of it side by side.
func printOutcome(w io.Writer, t crowd.Tally, b bookFigures) {
	out := NewTable()
	out.AppendHeader(table.Row{"", "the crowd was told", "Redis says", "the database says"})
	out.AppendRow(table.Row{"claims accepted", Number(t.Accepted), Number(b.redisSeq), Number(b.sqlRows)})
	out.AppendRow(table.Row{"units taken", Number(t.Units), Number(b.redisTaken), Number(b.sqlUnits)})
	out.AppendRow(table.Row{"units left", "", Number(b.redisRemaining), Number(b.sqlRemaining)})
	out.AppendRow(table.Row{"answered again, same key", Number(t.Replayed), "", ""})
	for _, code := range slices.Sorted(maps.Keys(t.Refused)) {
		out.AppendRow(table.Row{"refused: " + code, Number(t.Refused[code]), "", ""})
	}
	if later := t.Unready + t.Unknown; later > 0 {
		out.AppendRow(table.Row{"503 or no answer: asked again", Number(later), "", ""})
	}
	AlignRight(out, 2, 4)
	printf(w, "%s\n\n%s requests in %s; the last claim was in the database %s after the last answer\n", out.Render(),
		Number(t.Sent), t.Took.Round(10*time.Millisecond), b.took.Round(time.Millisecond))
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
		out.AppendRow(table.Row{s.Shard, s.Partition, Number(s.Granted), Number(s.Claimed), Number(s.Free), Number(s.Seq)})
	}
	AlignRight(out, 1, 6)
	printf(w, "\n%s\n", out.Render())
	printf(w, "%s moves of %s units between them\n\n", Number(b.moves.Moves), Number(b.moves.Units))
}
