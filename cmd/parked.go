package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"dibs/consumer"
	"dibs/finance"
	"dibs/internal/printer"
	"dibs/internal/process"
	"dibs/models"
	"dibs/models/stored"
	"dibs/syncer/compare"
)

// Three command families handle parked items: `dibs parked` has claims
// that MySQL refuses, `dibs finance` has events that it couldn't
// credit, `dibs webhooks` has events that an endpoint didn't accept.

// ErrParked means something is still parked after a retry.
var ErrParked = errors.New("cmd: still parked")

func stillParked(left, tried int64, what string) error {
	if left == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d of %d %s", ErrParked, left, tried, what)
}

func newParkedClaims(env Env) *cobra.Command {
	return family(cobra.Command{
		Use: "parked", Short: "List, retry or discard the claims that MySQL could not take",
		Long: `A claim that Redis accepted and MySQL refuses is parked, in the table parked_events, with
the reason. It holds its units. The messages that a service could not handle are parked
elsewhere: see 'dibs finance parked' and 'dibs webhooks parked'.`,
		Example: "  dibs parked list\n  dibs parked retry\n  dibs parked discard 019a7b1c-6f0e-7c5b-9a53-0242ac120002",
	}, newParkedList(env), newParkedRetry(env), newParkedDiscard(env))
}

// eachParkedClaim passes the parked claims of a campaign, or of all. No
// claims of no campaign are a misspelled id.
func eachParkedClaim(ctx context.Context, s *process.Stack, campaign string, do func(*compare.Parked) error) error {
	found := false
	err := s.Comparer().EachParked(ctx, campaign, func(p *compare.Parked) error {
		found = true
		return do(p)
	})
	if err == nil && !found && campaign != "" {
		_, err = campaignIDs(ctx, s, campaign)
	}
	return err
}

const oneCampaign = "id of one campaign; " + allUnlessGiven

var parkedClaimView = printer.View[compare.Parked]{
	Header: []string{"id", "campaign", "user", "reason", "parked at"}, Wide: 1,
	Rows: func(p *compare.Parked, row func(...any)) { row(p.ID, p.LotID, p.UserID, p.Reason, p.ParkedAt) },
}

func newParkedList(env Env) *cobra.Command {
	var campaign string
	var form printer.Form
	c := withServers(env, cobra.Command{
		Use: "list", Short: "List the parked claims, with the reasons",
		Example: "  dibs parked list --campaign spring\n  dibs parked list -o json",
		PreRunE: checkCampaign,
	}, func(ctx context.Context, s *process.Stack) error {
		l := printer.New(env.Stdout, form, parkedClaimView)
		if err := eachParkedClaim(ctx, s, campaign, func(p *compare.Parked) error { return l.Add(*p) }); err != nil {
			return err
		}
		return l.End()
	})
	c.Flags().StringVar(&campaign, "campaign", "", oneCampaign)
	form.Add(c)
	return c
}

func newParkedRetry(env Env) *cobra.Command {
	var campaign string
	var form printer.Form
	c := withServers(env, cobra.Command{
		Use: "retry", Short: "Write the parked claims that MySQL takes by now",
		Long: `Writes the parked claims that MySQL takes by now, after whatever stood in their way is
mended. What it refuses again stays parked.

Exit code 0: nothing is left. 1: something is.`,
		Example: "  dibs parked retry\n  dibs parked retry --campaign spring",
		PreRunE: checkCampaign,
	}, func(ctx context.Context, s *process.Stack) error {
		return retryParkedClaims(ctx, s, env, campaign, form)
	})
	c.Flags().StringVar(&campaign, "campaign", "", oneCampaign)
	form.Add(c)
	return c
}

func newParkedDiscard(env Env) *cobra.Command {
	var id string
	var form printer.Form
	c := withServers(env, cobra.Command{
		Use: "discard CLAIM", Short: "Give a parked claim up: its units are for sale again",
		Long: `Gives up a claim that was answered and that MySQL refuses. Its units are for sale again,
the ledger has it, and readers of the claim stream get claims.given_up. Its payload stays
in parked_events.`,
		Example: "  dibs parked discard 019a7b1c-6f0e-7c5b-9a53-0242ac120002",
		PreRun:  func(_ *cobra.Command, args []string) { id = args[0] },
	}, func(ctx context.Context, s *process.Stack) error {
		steps, err := s.Comparer().DiscardParked(ctx, id)
		if len(steps) == 0 {
			return err
		}
		return errors.Join(printer.Print(env.Stdout, form, repairView, steps...), err)
	})
	form.Add(c)
	return c
}

func retryParkedClaims(ctx context.Context, s *process.Stack, env Env, campaign string, form printer.Form) error {
	c := s.Comparer()
	campaigns := make(map[string]bool)
	if err := eachParkedClaim(ctx, s, campaign, func(p *compare.Parked) error {
		campaigns[models.CampaignIDOf(p.LotID)] = true
		return nil
	}); err != nil {
		return err
	}
	var failed []error
	l := printer.New(env.Stdout, form, repairView)
	for id := range campaigns {
		steps, err := c.RetryParked(ctx, id)
		failed = append(failed, l.Add(steps...))
		if !errors.Is(err, models.ErrNotFound) {
			failed = append(failed, err)
		}
	}
	left := 0
	failed = append(failed, l.End(), c.EachParked(ctx, campaign, func(*compare.Parked) error {
		left++
		return nil
	}))
	if left > 0 {
		failed = append(failed, fmt.Errorf("%w: %d claims: 'dibs parked list' says why", ErrParked, left))
	}
	return errors.Join(failed...)
}

var repairView = printer.View[stored.Repair]{
	Header: []string{"campaign", "what", "before", "after"},
	Rows:   func(r *stored.Repair, row func(...any)) { row(r.LotID, r.What, r.ValueBefore, r.ValueAfter) },
}

var parkedMessageView = printer.View[consumer.Parked]{
	Header: []string{"id", "event", "tries", "reason", "parked at"}, Wide: 1,
	Rows: func(p *consumer.Parked, row func(...any)) { row(p.ID, p.EventID, p.Attempts, p.Reason, p.At) },
}

func newParked(env Env) *cobra.Command {
	var form printer.Form
	c := withBooks(env, cobra.Command{
		Use:   "parked",
		Short: "List the messages that could not be credited, with the reasons",
		Long: `Lists the messages that the finance service has parked because no retry would credit them,
oldest first, each with the reason. They stay until a replay credits them or they are
discarded.`,
		Example: "  dibs finance parked\n  dibs finance parked -o json",
	}, func(ctx context.Context, s *process.Stack) error {
		return printer.New(env.Stdout, form, parkedMessageView).PrintAll(s.ParkedBy(finance.Group).All(ctx))
	})
	form.Add(c)
	return c
}

func newReplay(env Env) *cobra.Command {
	var id string
	var form printer.Form
	c := withBooks(env, cobra.Command{
		Use:   "replay [MESSAGE]",
		Short: "Credit the parked messages once more; those that go through are parked no longer",
		Long: `Hands parked messages to the finance service's own code once more, after whatever stood in
their way is mended. What is credited is parked no longer; what is refused again stays,
with the reason printed. It may be run while the service runs, and again after a crash:
nothing is credited twice. Nothing returns to the claim streams. One message is named by
its own id or its event's.

Exit code 0: nothing is left. 1: something is.`,
		Example: "  dibs finance replay\n  dibs finance replay 019a7b1c-6f0e-7c5b-9a53-0242ac120002",
		PreRun:  func(_ *cobra.Command, args []string) { id = strings.Join(args, "") },
	}, func(ctx context.Context, s *process.Stack) error { return replay(ctx, s, env, id, form) })
	form.Add(c)
	return c
}

func replay(ctx context.Context, s *process.Stack, env Env, id string, form printer.Form) error {
	if err := s.Note(ctx, models.AuditParkedReplayed, finance.Group, id); err != nil {
		return err
	}
	books, err := s.NewBooks()
	if err != nil {
		return err
	}
	sum, err := s.ParkedBy(finance.Group).Replay(ctx, id, books.Handle)
	err = errors.Join(err, s.CloseBooks(ctx, books))
	left := len(sum.Left)
	switch form {
	case printer.JSON:
		err = errors.Join(err, printer.PrintJSON(env.Stdout, sum))
	case printer.Table:
		printer.Printf(env.Stdout, "credited %s, still parked %s\n", printer.Number(sum.Handled), printer.Number(left))
	case printer.CSV:
	}
	if left > 0 && form != printer.JSON {
		err = errors.Join(err, printer.Print(env.Stdout, form, parkedMessageView, sum.Left...))
	}
	return errors.Join(err, stillParked(int64(left), int64(left+sum.Handled), "messages"))
}

func newDiscard(env Env) *cobra.Command {
	var id string
	form := printer.JSON
	c := withBooks(env, cobra.Command{
		Use:     "discard MESSAGE",
		Short:   "Delete a parked message for good; it is printed, and credited nowhere",
		Long:    "Deletes one message, by its own id or its event's.",
		Example: "  dibs finance discard p0/1763716946123-0",
		PreRun:  func(_ *cobra.Command, args []string) { id = args[0] },
	}, func(ctx context.Context, s *process.Stack) error {
		if err := s.Note(ctx, models.AuditParkedDiscarded, finance.Group, id); err != nil {
			return err
		}
		discarded, err := s.ParkedBy(finance.Group).Discard(ctx, id)
		return errors.Join(err, printer.Print(env.Stdout, form, parkedMessageView, discarded...))
	})
	form.Add(c)
	return c
}
