package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"dibs/internal/config"
	"dibs/models"
	"dibs/syncer/compare"
)

func newParkedClaims(env Env) *cobra.Command {
	c := &cobra.Command{
		Use: "parked", Short: "List, retry or discard the claims that MySQL could not take",
		Long: `A claim that Redis accepted and MySQL refuses is parked, in the table parked_events, with the reason. It holds its units. The messages
that a service could not handle are parked elsewhere: see 'dibs finance parked' and 'dibs webhooks parked'.`,
		Example: "  dibs parked list\n  dibs parked retry\n  dibs parked discard 019a7b1c-6f0e-7c5b-9a53-0242ac120002",
		Args:    cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newParkedList(env), newParkedRetry(env), newParkedDiscard(env))
	return c
}

func newParkedList(env Env) *cobra.Command {
	var campaign string
	var asJSON bool
	c := command(env, cobra.Command{
		Use: "list", Short: "List the parked claims, with the reasons", Example: "  dibs parked list --campaign spring\n  dibs parked list --json",
	}, needsServers(func(ctx context.Context, cfg *config.Config) error {
		return withStack(ctx, env, cfg, func(s *stack) error { return s.listParkedClaims(ctx, env.Stdout, campaign, asJSON) })
	}))
	c.Flags().StringVar(&campaign, "campaign", "", "id of one campaign; all unless given")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line a claim")
	return c
}

func newParkedRetry(env Env) *cobra.Command {
	var campaign string
	c := command(env, cobra.Command{
		Use: "retry", Short: "Write the parked claims that MySQL takes by now",
		Long: `Writes the parked claims that MySQL takes by now, after whatever stood in their way is mended. What it refuses again stays parked.

Exit code 0: nothing is left. 1: something is.`,
		Example: "  dibs parked retry\n  dibs parked retry --campaign spring",
	}, needsServers(func(ctx context.Context, cfg *config.Config) error {
		return withStack(ctx, env, cfg, func(s *stack) error { return s.retryParkedClaims(ctx, env.Stdout, campaign) })
	}))
	c.Flags().StringVar(&campaign, "campaign", "", "id of one campaign; all unless given")
	return c
}

func newParkedDiscard(env Env) *cobra.Command {
	var id string
	c := command(env, cobra.Command{
		Use: "discard ID", Short: "Give a parked claim up: its units are for sale again",
		Long: `Gives up a claim that was answered and that MySQL refuses. Its units are for sale again, the ledger has it, and claims.given_up tells
the readers of the claim stream. Its payload stays in parked_events.`,
		Example: "  dibs parked discard 019a7b1c-6f0e-7c5b-9a53-0242ac120002",
	}, needsServers(func(ctx context.Context, cfg *config.Config) error {
		return withStack(ctx, env, cfg, func(s *stack) error {
			steps, err := s.comparer().DiscardParked(ctx, id)
			printSteps(env.Stdout, steps)
			if err == nil {
				printf(env.Stdout, "discarded %s\n", id)
			}
			return err
		})
	}))
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("one id: of which claim?")
		}
		id = args[0]
		return nil
	}
	return c
}

// comparer is for one command.
func (s *stack) comparer() *compare.Comparer {
	return compare.New(s.db, s.scripts, s.loader, s.log, nil)
}

func (s *stack) listParkedClaims(ctx context.Context, w io.Writer, campaign string, asJSON bool) error {
	out := NewTable()
	out.AppendHeader(table.Row{"id", "campaign", "user", "parked at", "reason"})
	err := s.comparer().EachParked(ctx, campaign, func(p *compare.Parked) error {
		if asJSON {
			return json.NewEncoder(w).Encode(p)
		}
		out.AppendRow(table.Row{p.ID, p.CampaignID, p.UserID, p.ParkedAt.Format(models.TimeLayout), p.Reason})
		return nil
	})
	if err == nil && !asJSON {
		_, _ = fmt.Fprintln(w, out.Render())
	}
	return err
}

func (s *stack) retryParkedClaims(ctx context.Context, w io.Writer, campaign string) error {
	c := s.comparer()
	campaigns := make(map[string]bool)
	if err := c.EachParked(ctx, campaign, func(p *compare.Parked) error {
		id, _ := models.SplitShardID(p.CampaignID)
		campaigns[id] = true
		return nil
	}); err != nil {
		return err
	}
	var failed []error
	for id := range campaigns {
		steps, err := c.RetryParked(ctx, id)
		printSteps(w, steps)
		if !errors.Is(err, models.ErrNotFound) {
			failed = append(failed, err)
		}
	}
	left := 0
	failed = append(failed, c.EachParked(ctx, campaign, func(*compare.Parked) error {
		left++
		return nil
	}))
	if left > 0 {
		failed = append(failed, fmt.Errorf("%w: %d claims: 'dibs parked list' says why", ErrParked, left))
	}
	return errors.Join(failed...)
}

func printSteps(w io.Writer, steps []models.Repair) {
	for _, step := range steps {
		printf(w, "%s: %s: %s -> %s\n", step.CampaignID, step.What, step.ValueBefore, step.ValueAfter)
	}
}
