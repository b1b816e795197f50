package cmd

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"dibs/internal/config"
	"dibs/syncer/reconcile"

	"github.com/jedib0t/go-pretty/v6/table"
)

// totals prints what was claimed on a day.
func totals(ctx context.Context, env Env, cfg *config.Config, flags reconcileFlags) error {
	day, err := time.Parse(time.DateOnly, flags.totals)
	if err != nil {
		return fmt.Errorf("%w: --totals %q: a day such as 2026-11-21 is required", ErrUsage, flags.totals)
	}
	zone, err := time.LoadLocation(flags.timeZone)
	if err != nil || flags.timeZone == "Local" {
		return fmt.Errorf("%w: --time-zone %q: no such zone", ErrUsage, flags.timeZone)
	}
	if flags.repair || flags.campaign != "" {
		return fmt.Errorf("%w: --totals goes with --time-zone and --json alone", ErrUsage)
	}
	return withStack(ctx, env, cfg, func(s *stack) error {
		found, err := reconcile.New(s.db, s.scripts, s.hydrator, s.log, nil).Totals(ctx, day, zone)
		if err != nil {
			return err
		}
		if flags.json {
			return printJSON(env.Stdout, []*reconcile.Totals{found})
		}
		printTotals(env.Stdout, found)
		return nil
	})
}

func printTotals(w io.Writer, t *reconcile.Totals) {
	out := NewTable()
	out.AppendHeader(table.Row{"campaign", "currency", "claims", "units", "amount", "first seq", "last seq"})
	for i := range t.Campaigns {
		c := &t.Campaigns[i]
		row := table.Row{c.CampaignID, c.Currency, number(c.Claims), number(c.Units), number(c.Amount)}
		if only := c.Shards[0]; only.Shard == 0 {
			out.AppendRow(append(row, number(only.FirstSeq), number(only.LastSeq)))
			continue
		}
		out.AppendRow(row)
		for _, shard := range c.Shards { // each has an order of its own
			name := fmt.Sprintf("  shard %d", shard.Shard)
			out.AppendRow(table.Row{name, "", number(shard.Claims), "", "", number(shard.FirstSeq), number(shard.LastSeq)})
		}
	}
	for _, sum := range t.Sums {
		out.AppendFooter(table.Row{"all", sum.Currency, number(sum.Claims), number(sum.Units), number(sum.Amount)})
	}
	_, _ = fmt.Fprintln(w, out.Render())
	verdict := "complete"
	if !t.Complete {
		verdict = "NOT complete: " + strings.Join(t.Why, "; ")
	}
	_, _ = fmt.Fprintf(w, "%s %s, in mysql up to %s: %s\n", t.Day, t.TimeZone, t.SyncedUntil.Format(time.RFC3339), verdict)
}
