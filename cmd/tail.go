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
	"dibs/models"
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
			for i := range entries {
				after[p] = entries[i].ID
				if err := printEvent(env, l, campaign, entries[i].Payload); err != nil {
					return err
				}
			}
			if err := l.End(); err != nil {
				return err
			}
		}
		if sleep.For(ctx, tailEvery) != nil {
			return nil //nolint:nilerr // Ctrl-C
		}
	}
}

// printEvent prints the payload of an entry, if it is of the campaign or any
// will do.
func printEvent(env Env, l *printer.List[json.RawMessage], campaign, payload string) error {
	e, err := models.DecodeEvent([]byte(payload))
	switch {
	case campaign != "" && (err != nil || e.CampaignID != campaign):
		return nil
	case l.Form == printer.JSON: // unchanged, whatever it is
		_, err := fmt.Fprintln(env.Stdout, payload)
		return err //nolint:wrapcheck // a closed terminal
	case err != nil:
		return nil //nolint:nilerr // it has no columns
	}
	return l.Add(json.RawMessage(payload))
}
