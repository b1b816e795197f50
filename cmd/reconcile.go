package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"dibs/internal/printer"
	"dibs/internal/process"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/compare"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// The number of campaigns that are compared before the results are
// recorded and printed, and how many of them concurrently.
const reconcileChunk, reconcileAtOnce = 100, 4

type reconcileFlags struct {
	form                      printer.Form
	campaign                  string
	repair, giveUp, acceptGap bool
}

func newReconcile(env Env) *cobra.Command {
	var flags reconcileFlags
	c := withServers(env, cobra.Command{
		Use:   "reconcile",
		Short: "Compare Redis with MySQL, and the books with the claims; exit 3 when they differ",
		Long: `Compare what Redis and MySQL say of each campaign, the counters with the rows of claims,
and what each user holds.

Claims that are on their way to MySQL are a backlog, not a difference. With --repair the
books are put right in the direction of the evidence, which is the rows of claims and the
events in the claim stream; what was changed is printed and kept in the table repairs. A
campaign whose stock in Redis is rebuilt takes no claims for that long.

A claim whose event is parked (table parked_events) was accepted and could not be written:
it holds its units, and is named here. A repair writes it if that works by now. A claim
whose seq was given to another after Redis was rolled back gets a new one while stock
lasts.

A repair gives up no claim that was answered. What it can't restore it names, and exits 3.
With --give-up-claims it gives these claims up: it prints their ids, their units are free
again, and the claim stream gets claims.given_up.

Exit code 0: the books agree, or do so after the repair. 3: they differ.`,
		Example: "  dibs reconcile\n  dibs reconcile --campaign spring-sale -o json\n  dibs reconcile --campaign spring-sale --repair",
		PreRunE: func(c *cobra.Command, args []string) error {
			switch {
			case flags.giveUp && !flags.repair:
				return usagef("--give-up-claims goes with --repair")
			case flags.acceptGap && (flags.repair || flags.form != printer.Table || c.Flags().Changed("campaign")):
				return usagef("--accept-gap stands alone")
			}
			return checkCampaign(c, args)
		},
	}, func(ctx context.Context, s *process.Stack) error {
		if flags.acceptGap {
			return acceptGaps(ctx, s, env.Stdout)
		}
		return reconcile(ctx, s, env.Stdout, flags)
	})
	c.Flags().StringVar(&flags.campaign, "campaign", "", oneCampaign)
	flags.form.Add(c)
	c.Flags().BoolVar(&flags.repair, "repair", false,
		"load what differs again, from the rows of claims, and count the counters from them")
	c.Flags().BoolVar(&flags.giveUp, "give-up-claims", false, "with --repair: put the units of lost claims up for sale again")
	c.Flags().BoolVar(&flags.acceptGap, "accept-gap", false,
		"give up what MySQL lacks of a claim stream that begins later, after a restore to too old a dump")
	return c
}

func reconcile(ctx context.Context, s *process.Stack, w io.Writer, flags reconcileFlags) error { //nolint:gocognit // page by page
	reconciler := s.Comparer()
	ids, err := campaignIDs(ctx, s, flags.campaign)
	if err != nil {
		return err
	}
	gaps, err := compare.Gaps(ctx, s.DB, s.Scripts)
	if err != nil {
		return err
	}
	var all []compare.Repaired
	var failed []error
	differ := 0
	for some := range slices.Chunk(ids, reconcileChunk) {
		found, err := reconcileAll(ctx, reconciler, some, flags)
		if err != nil {
			failed = append(failed, err)
		}
		for i := range found {
			if !found[i].Left.Agrees() {
				differ++
			}
			var err error
			switch {
			case flags.form == printer.JSON && flags.repair:
				err = printer.PrintJSON(w, found[i])
			case flags.form == printer.JSON:
				err = printer.PrintJSON(w, found[i].Found)
			}
			if err != nil {
				return err
			}
		}
		all = append(all, found...)
	}
	if flags.form != printer.JSON && (len(all) > 0 || len(failed) == 0) {
		if err := printer.Print(w, flags.form, comparisonView, all...); err != nil {
			return err
		}
	}
	if flags.form == printer.Table {
		printDifferences(w, all, flags.repair)
	}
	if len(gaps) > 0 {
		failed = append(failed, errGap(gaps))
	}
	if flags.campaign == "" {
		if err := onlyInRedis(ctx, s, ids); err != nil {
			failed = append(failed, err)
		}
		if len(ids) == 0 && flags.form == printer.Table {
			_, _ = fmt.Fprintln(w, "0 campaigns in mysql")
		}
	}
	if differ > 0 {
		failed = append([]error{fmt.Errorf("%w: %d of %d campaigns", ErrDrift, differ, len(ids))}, failed...)
	}
	return errors.Join(failed...)
}

// onlyInRedis returns ErrDrift, wrapped, with the campaigns that Redis
// holds and MySQL lacks. known are those that MySQL had.
func onlyInRedis(ctx context.Context, s *process.Stack, known []string) error {
	held, err := s.Scripts.Held(ctx)
	if err != nil {
		return err
	}
	isKnown := make(map[string]bool, len(known))
	for _, id := range known {
		isKnown[id] = true
	}
	var only []string
	for _, lot := range held {
		id := models.CampaignIDOf(lot)
		if isKnown[id] {
			continue
		}
		isKnown[id] = true
		_, err := s.Campaigns.Get(ctx, id) // it may have been created since
		switch {
		case errors.Is(err, models.ErrNotFound):
			only = append(only, id)
		case err != nil:
			return err
		}
	}
	if len(only) == 0 {
		return nil
	}
	names := strings.Join(only[:min(len(only), onlyNamed)], ", ")
	if len(only) > onlyNamed {
		names += fmt.Sprintf(" and %d more", len(only)-onlyNamed)
	}
	return fmt.Errorf("%w: redis holds %d campaigns that mysql does not have: %s. Is this the right database, and was it restored?",
		ErrDrift, len(only), names)
}

// onlyNamed bounds how many such campaigns are named.
const onlyNamed = 20

// reconcileAll compares or repairs campaigns, some concurrently, and
// records the state afterwards. It returns the results in order.
func reconcileAll(ctx context.Context, r *compare.Comparer, ids []string, flags reconcileFlags) ([]compare.Repaired, error) {
	all := make([]compare.Repaired, len(ids))
	failed := make([]error, len(ids))
	var g errgroup.Group
	g.SetLimit(reconcileAtOnce)
	if flags.repair {
		g.SetLimit(1) // each step is reported before the next begins
	}
	for i, id := range ids {
		g.Go(func() error {
			if flags.repair {
				all[i], failed[i] = r.Repair(ctx, id, flags.giveUp)
				return nil
			}
			all[i].Found, failed[i] = r.Compare(ctx, id)
			all[i].Left = all[i].Found
			return nil
		})
	}
	_ = g.Wait()
	var left []*compare.Comparison
	for i := range all {
		if failed[i] == nil {
			left = append(left, &all[i].Left)
		}
	}
	recorded := r.Record(ctx, left...)
	all = slices.DeleteFunc(all, func(one compare.Repaired) bool { return one.Found.CampaignID == "" })
	return all, errors.Join(append(failed, recorded)...) //nolint:makezero // one each, and one more
}

// campaignIDs is the one campaign, if it exists, or all.
func campaignIDs(ctx context.Context, s *process.Stack, one string) (ids []string, err error) {
	if one != "" {
		_, err := s.Campaigns.Get(ctx, one)
		if errors.Is(err, models.ErrNotFound) {
			err = fmt.Errorf("cmd: no campaign %s: %w", one, err)
		}
		return []string{one}, err
	}
	for page, err := range sqlstore.Pages(func(c *models.Campaign) string { return c.ID }, func(after string) ([]models.Campaign, error) {
		return s.Campaigns.List(ctx, models.CampaignQuery{After: after, Limit: listAtOnce})
	}) {
		if err != nil {
			return nil, err
		}
		for i := range page {
			ids = append(ids, page[i].ID)
		}
	}
	return ids, nil
}

func printDifferences(w io.Writer, all []compare.Repaired, repair bool) {
	for i := range all {
		one := &all[i]
		for _, line := range one.Found.Differences {
			printer.Printf(w, "%s: %s\n", one.Found.CampaignID, line)
		}
		if lost := &one.Left.MySQL; lost.LostUnits > 0 {
			printer.Printf(w, "%s: %d claims of %d units are lost: they are not for sale; `dibs reconcile --repair --give-up-claims` changes that\n",
				one.Left.CampaignID, lost.LostClaims, lost.LostUnits)
		}
		for _, step := range one.Steps {
			printer.Printf(w, "%s: repaired %s: %s -> %s\n", step.LotID, step.What, step.ValueBefore, step.ValueAfter)
		}
		for _, id := range one.GivenUp {
			printer.Printf(w, "%s: given up: claim %s\n", one.Found.CampaignID, id)
		}
		for _, line := range one.Left.Differences {
			if repair {
				printer.Printf(w, "%s: still: %s\n", one.Left.CampaignID, line)
			}
		}
	}
}

// comparisonView shows a campaign's current state, after any repair. Redis,
// MySQL and the rows of claims each have their count of claimed units.
var comparisonView = printer.View[compare.Repaired]{
	Header: []string{
		"campaign", "total", "redis", "mysql", "rows", "backlog", "drift", "books", "where", "left in redis", "left in mysql",
	},
	Wide: 3,
	Rows: func(one *compare.Repaired, row func(...any)) {
		c := &one.Left
		verdict := "agree"
		switch {
		case !c.Agrees():
			verdict = "DIFFER"
		case !one.Found.Agrees():
			verdict = "repaired"
		case c.Redis != nil && c.Drift == nil: // MySQL hasn't applied the whole stream
			verdict = "agree so far"
		}
		var taken, left, rows *int64
		if c.Redis != nil {
			taken = &c.Redis.Taken
			left = &c.Redis.Remaining
		}
		if c.Rows != nil {
			rows = &c.Rows.Units
		}
		row(c.CampaignID, c.MySQL.Total, taken, c.MySQL.Claimed, rows, c.Backlog, c.Drift, verdict, c.Residency, left, c.MySQL.Remaining)
	},
}
