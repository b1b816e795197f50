package cmd

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"dibs/internal/crowd"
	"dibs/internal/printer"
	"dibs/syncer/compare"
)

// printOutcome prints a demo's figures from the crowd, Redis and the
// database side by side.
func printOutcome(w io.Writer, t crowd.Tally, a account) {
	redis := cmp.Or(a.Redis, &compare.RedisFigures{})
	rows := cmp.Or(a.Rows, &compare.RowFigures{})
	out := printer.NewTable()
	out.AppendHeader(table.Row{"", "the crowd got", "Redis says", "the database says"})
	out.AppendRow(table.Row{"claims accepted", printer.Number(t.Accepted), printer.Number(redis.Seq), printer.Number(rows.Claims)})
	out.AppendRow(table.Row{"units taken", printer.Number(t.Units), printer.Number(redis.Taken), printer.Number(rows.Units)})
	out.AppendRow(table.Row{"units left", "", printer.Number(redis.Remaining), printer.Number(a.MySQL.Remaining)})
	out.AppendRow(table.Row{"answered again, same key", printer.Number(t.Replayed), "", ""})
	for _, code := range slices.Sorted(maps.Keys(t.Refused)) {
		out.AppendRow(table.Row{"refused: " + code, printer.Number(t.Refused[code]), "", ""})
	}
	if later := t.Unready + t.Unknown; later > 0 {
		out.AppendRow(table.Row{"503 or no answer: asked again", printer.Number(later), "", ""})
	}
	printer.AlignRight(out, 2, 4)
	printer.Printf(w, "%s\n\n%s requests in %s; the last claim was in the database %s after the last answer\n", out.Render(),
		printer.Number(t.Sent), t.Took.Round(10*time.Millisecond), a.took.Round(time.Millisecond))
	printShards(w, a)
	if wrong := disagreements(t, a); len(wrong) > 0 {
		printer.Printf(w, "THE BOOKS DIFFER\n  %s\n", strings.Join(wrong, "\n  "))
		return
	}
	printer.Printf(w, "the books agree\n")
}

// disagreements lists where the three differ. A demo must have none.
func disagreements(t crowd.Tally, a account) []string {
	wrong := slices.Concat(t.Faults, a.Differences)
	redis := cmp.Or(a.Redis, &compare.RedisFigures{})
	rows := cmp.Or(a.Rows, &compare.RowFigures{})
	for _, pair := range []struct {
		what            string
		answered, found int64
	}{
		{"units the crowd was given, units taken in Redis", t.Units, redis.Taken},
		{"units the crowd was given, units of claims rows", t.Units, rows.Units},
		{"claims the crowd was given, seq in Redis", int64(t.Accepted), redis.Seq},
		{"claims the crowd was given, claims rows", int64(t.Accepted), rows.Claims},
	} {
		if pair.answered != pair.found {
			wrong = append(wrong, fmt.Sprintf("%s: %d and %d", pair.what, pair.answered, pair.found))
		}
	}
	if !a.synced {
		wrong = append(wrong, fmt.Sprintf("claims were still on their way after %s", drainTimeout))
	}
	return wrong
}

func printShards(w io.Writer, a account) {
	if len(a.shards) == 0 {
		return
	}
	out := printer.NewTable()
	out.AppendHeader(table.Row{"shard", "partition", "units", "claimed", "free", "claims"})
	for i := range a.shards {
		s := &a.shards[i]
		out.AppendRow(table.Row{s.Shard, s.Partition, printer.Number(s.Granted), printer.Number(s.Claimed),
			printer.Number(s.Free), printer.Number(s.Seq)})
	}
	printer.AlignRight(out, 1, 6)
	printer.Printf(w, "\n%s\n", out.Render())
	printer.Printf(w, "%s moves of %s units between them\n\n", printer.Number(a.moves.Moves), printer.Number(a.moves.Units))
}
