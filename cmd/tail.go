package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"dibs/internal/printer"
	"dibs/internal/process"
	"dibs/internal/sleep"
	"dibs/lua"
	"dibs/models/event"
)

const (
	tailEvery  = 200 * time.Millisecond
	tailAtOnce = 500 // entries of a stream
)

func newTail(env Env) *cobra.Command {
	var campaign string
	form := printer.JSON
	c := withServers(env, cobra.Command{
		Use: "tail", Short: "Print the events of the claim streams as they come, a line each, until Ctrl-C",
		Long: `Reads the claim streams of Redis from now on, as no group and without a trace there. Redis
may still lose what is printed; the ledger of the API has what MySQL has.`,
		Example: "  dibs tail\n  dibs tail --campaign spring",
		PreRunE: checkCampaign,
	}, func(ctx context.Context, s *process.Stack) error { return tail(ctx, s, env, campaign, form) })
	c.Flags().StringVar(&campaign, "campaign", "", oneCampaign)
	form.Add(c)
	return c
}

func tail(ctx context.Context, s *process.Stack, env Env, campaign string, form printer.Form) error {
	l := printer.New(env.Stdout, form, eventView)
	after := make([]lua.EntryID, s.Scripts.Partitions())
	for p := range after {
		stream, err := s.Scripts.Stream(ctx, p)
		if err != nil {
			return err
		}
		after[p] = stream.Tip
	}
	for {
		for p := range after {
			entries, err := s.Scripts.Entries(ctx, p, after[p].Next(), tailAtOnce)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // Ctrl-C
			}
			if err != nil {
				return err
			}
			if len(entries) > 0 {
				after[p] = entries[len(entries)-1].ID
			}
			if err := printEvents(env, l, campaign, entries); err != nil {
				return err
			}
		}
		if sleep.For(ctx, tailEvery) != nil {
			return nil //nolint:nilerr // Ctrl-C
		}
	}
}

// printEvents prints the payloads of entries that are of the campaign, or all.
func printEvents(env Env, l *printer.List[json.RawMessage], campaign string, entries []lua.Entry) error {
	for i := range entries {
		payload := entries[i].Payload
		e, invalid := event.Decode([]byte(payload))
		var err error
		switch {
		case campaign != "" && (invalid != nil || e.CampaignID != campaign):
		case l.Form == printer.JSON: // unchanged, whatever it is
			_, err = fmt.Fprintln(env.Stdout, payload)
		case invalid == nil: // else it has no columns
			err = l.Add(json.RawMessage(payload))
		}
		if err != nil {
			return err
		}
	}
	return l.End()
}
