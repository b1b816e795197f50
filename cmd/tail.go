package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

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
	c := withServers(env, cobra.Command{
		Use: "tail", Short: "Print the events of the claim streams as they come, a line of JSON each, until Ctrl-C",
		Long: `Reads the claim streams of Redis from now on, as no group and without a trace there. Redis may still lose what is printed; the ledger
of the API has what MySQL has.`,
		Example: "  dibs tail\n  dibs tail --campaign spring",
	}, checkCampaign, func(ctx context.Context, _ *cobra.Command, s *stack) error { return s.tail(ctx, env, campaign) })
	c.Flags().StringVar(&campaign, "campaign", "", "id of one campaign; all unless given")
	return c
}

// tail prints events until ctx ends.
func (s *stack) tail(ctx context.Context, env Env, campaign string) error {
	after := make([]lua.EntryID, s.scripts.Partitions())
	for p := range after {
		stream, err := s.scripts.Stream(ctx, p)
		if err != nil {
			return err
		}
		after[p] = stream.Tip
	}
	for {
		for p := range after {
			entries, err := s.scripts.Entries(ctx, p, after[p].Next(), tailAtOnce)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // Ctrl-C
			}
			if err != nil {
				return err
			}
			for i := range entries {
				after[p] = entries[i].ID
				e, err := models.DecodeEvent([]byte(entries[i].Payload))
				if campaign == "" || err == nil && e.CampaignID == campaign {
					printf(env.Stdout, "%s\n", entries[i].Payload)
				}
			}
		}
		if sleep.For(ctx, tailEvery) != nil {
			return nil //nolint:nilerr // Ctrl-C
		}
	}
}
