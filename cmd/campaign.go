package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"dibs/client"
	"dibs/internal/printer"
	"dibs/models/calendar"
)

func newCampaign(env Env) *cobra.Command {
	return family(cobra.Command{
		Use: "campaign", Short: "Create, list, show and change campaigns, over HTTP",
		Long: "Asks the API of DIBS_URL with DIBS_TOKEN: a viewer's to read, an admin's to change.",
		Example: "  dibs campaign create spring --total 1000 --per-user 2\n  dibs campaign list --status open\n" +
			"  dibs campaign set spring --total 1500",
	}, newCampaignCreate(env), newCampaignList(env), newCampaignGet(env), newCampaignSet(env), newCampaignClose(env), newCampaignDelete(env),
		newCampaignPause(env), newCampaignOpen(env))
}

type listedCampaign struct {
	client.Campaign

	Remaining *int64 `json:"remaining,omitempty"`
	Claimed   *int64 `json:"claimed,omitempty"`
}

var campaignView = printer.View[listedCampaign]{
	Header: []string{"id", "kind", "status", "total", "remaining", "claimed", "per user", "name", "per day"}, Wide: 1,
	Rows: func(c *listedCampaign, row func(...any)) {
		row(c.ID, c.Kind, c.Status, c.Total, c.Remaining, c.Claimed, limitOrNone(c.PerUser), c.Name, limitOrNone(c.PerUserPerDay))
	},
}

func aboutCampaign(env Env, c cobra.Command, ask func(context.Context, *question[client.Campaign]) error) *cobra.Command {
	return overHTTP(env, c, printer.View[client.Campaign]{
		Header: []string{"id", "kind", "status", "total", "per user", "per day", "name"},
		Rows: func(c *client.Campaign, row func(...any)) {
			row(c.ID, c.Kind, c.Status, c.Total, limitOrNone(c.PerUser), limitOrNone(c.PerUserPerDay), c.Name)
		},
	}, ask)
}

func limitOrNone(n int64) any {
	if n == 0 {
		return "none"
	}
	return n
}

type campaignFlags struct {
	title, public          string
	total, perUser, perDay int64
	limits                 []string
	starts, ends           string // on the clocks of the campaign's zone
}

func (f *campaignFlags) add(c *cobra.Command, total, perUser, limit, public string) {
	flags := c.Flags()
	flags.StringVar(&f.title, "title", "", "what people call it")
	flags.StringVar(&f.public, "public", "", "what anybody may read without a token: level or count of what is left"+public)
	flags.Int64Var(&f.total, "total", 0, total)
	flags.Int64Var(&f.perUser, "per-user", 0, "most units of one user; 0: no limit"+perUser)
	flags.Int64Var(&f.perDay, "per-user-per-day", 0, "most units of one user in a day; 0: no limit")
	flags.StringArrayVar(&f.limits, "limit", nil, "a limit such as device:day:1"+limit)
	flags.StringVar(&f.starts, "starts-at", "", "such as 2027-01-31T18:00 in the campaign's zone, or 2027-01-31T18:00:00Z")
	flags.StringVar(&f.ends, "ends-at", "", "as --starts-at; a time that clocks show twice needs its offset")
}

// window reads a campaign's start and end in its zone.
func (f *campaignFlags) window(zoneName string) (starts, ends *time.Time, err error) {
	zone, err := calendar.LoadZone(cmp.Or(zoneName, "UTC"))
	if err != nil {
		return nil, nil, usagef("--time-zone must be an IANA zone such as Europe/Berlin")
	}
	read := func(name, text string) *time.Time {
		if text == "" || err != nil {
			return nil
		}
		var at time.Time
		at, err = calendar.ParseLocal(text, zone, "")
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return &at
	}
	starts = read("--starts-at", f.starts)
	ends = read("--ends-at", f.ends)
	if err != nil {
		return nil, nil, usagef("%w", err)
	}
	return starts, ends, nil
}

func newCampaignCreate(env Env) *cobra.Command {
	var n client.NewCampaign
	var kind string
	var holdFor, holdMax time.Duration
	var f campaignFlags
	c := aboutCampaign(env, cobra.Command{
		Use: "create ID", Short: "Create a campaign; the same again changes nothing",
		Example: "  dibs campaign create spring --total 1000 --per-user 2\n  dibs campaign create rain --kind packet --currency EUR",
	}, func(ctx context.Context, q *question[client.Campaign]) (err error) {
		n.ID = q.id
		n.Kind = client.Kind(kind)
		n.Name = f.title
		n.Public = f.public
		n.PerUserPerDay = f.perDay
		n.Total = given(q.c, "total", &f.total)
		n.PerUser = given(q.c, "per-user", &f.perUser)
		if n.Kind == client.KindCoupon && n.Total == nil {
			return missing(q.c, "--total")
		}
		n.HoldFor = client.Duration(holdFor)
		n.HoldMax = client.Duration(holdMax)
		n.Limits, err = limitsOf(f.limits)
		if err != nil {
			return err
		}
		n.StartsAt, n.EndsAt, err = f.window(n.TimeZone)
		if err != nil {
			return err
		}
		made, _, err := q.CreateCampaign(ctx, n)
		return q.show(made, err)
	})
	f.add(c, "units; of a coupon", ", of packets 1", " or user:hour:2, once for each", "; nothing unless given")
	c.Flags().StringVar(&kind, "kind", "coupon", "coupon or packet")
	c.Flags().StringVar(&n.TimeZone, "time-zone", "", "in which the windows of limits begin; UTC unless given")
	c.Flags().StringVar(&n.Currency, "currency", "", "ISO 4217; of packets")
	c.Flags().StringVar(&n.SenderID, "sender", "", "user who gets back what is left of packets")
	c.Flags().Int64Var(&n.LowStockAt, "low-stock-at", 0, "units left at which campaign.low_stock is sent")
	c.Flags().DurationVar(&holdFor, "hold-for", 0, "how long a claim is held until it is redeemed, such as 15m; for ever unless given")
	c.Flags().DurationVar(&holdMax, "hold-max", 0, "how long with extensions; twice as long unless given")
	c.Flags().IntVar(&n.Shards, "shards", 0, "over how many Redis primaries; 1 unless given")
	c.Flags().StringVar(&n.ShardBy, "shard-by", "", "the subject whose value decides the shard; the user unless given")
	return c
}

func newCampaignList(env Env) *cobra.Command {
	var filter client.CampaignFilter
	c := overHTTP(env, cobra.Command{
		Use: "list", Short: "List campaigns, by id", Example: "  dibs campaign list --status open --search spring\n  dibs campaign list -o csv",
	}, campaignView, func(ctx context.Context, q *question[listedCampaign]) error {
		var all []*listedCampaign
		var asking errgroup.Group
		asking.SetLimit(stocksAtOnce)
		for one, err := range q.AllCampaigns(ctx, filter) {
			if err != nil {
				return err
			}
			listed := &listedCampaign{Campaign: one}
			all = append(all, listed)
			asking.Go(func() error {
				// unknown otherwise, shown as a dash
				if stock, err := q.Stock(ctx, one.ID); err == nil {
					listed.Remaining = &stock.Remaining
					listed.Claimed = &stock.Claimed
				}
				return nil
			})
		}
		_ = asking.Wait()
		for _, one := range all {
			if err := q.out.Add(*one); err != nil {
				return err
			}
		}
		return q.out.End()
	})
	c.Flags().StringVar(&filter.Text, "search", "", "part of the id or the name")
	c.Flags().StringVar((*string)(&filter.Status), "status", "", "open, paused or closed")
	return c
}

const stocksAtOnce = 8

type campaignAndStock struct {
	Campaign client.Campaign `json:"campaign"`
	Stock    client.Stock    `json:"stock"`
}

func newCampaignGet(env Env) *cobra.Command {
	return overHTTP(env, cobra.Command{Use: "get CAMPAIGN", Short: "Show a campaign and its stock",
		Example: "  dibs campaign get spring -o json"},
		printer.View[campaignAndStock]{
			Header: []string{"id", "status", "total", "remaining", "claimed", "backlog", "drift"},
			Rows: func(c *campaignAndStock, row func(...any)) {
				row(c.Campaign.ID, c.Campaign.Status, c.Stock.Total, c.Stock.Remaining, c.Stock.Claimed, c.Stock.Backlog, c.Stock.Drift)
			},
		}, func(ctx context.Context, q *question[campaignAndStock]) error {
			found, err := q.GetCampaign(ctx, q.id)
			if err != nil {
				return err
			}
			stock, err := q.Stock(ctx, q.id)
			return q.show(campaignAndStock{found, stock}, err)
		})
}

func newCampaignSet(env Env) *cobra.Command {
	var f campaignFlags
	var lowStock int64
	c := aboutCampaign(env, cobra.Command{
		Use: "set CAMPAIGN", Short: "Change a campaign, in force for the next claim", Example: "  dibs campaign set spring --total 1500",
	}, func(ctx context.Context, q *question[client.Campaign]) error {
		public := f.public
		if public == "nothing" {
			public = ""
		}
		patch := client.CampaignPatch{
			Name: given(q.c, "title", &f.title), Total: given(q.c, "total", &f.total), PerUser: given(q.c, "per-user", &f.perUser),
			PerUserPerDay: given(q.c, "per-user-per-day", &f.perDay), LowStockAt: given(q.c, "low-stock-at", &lowStock),
			Public: given(q.c, "public", &public),
		}
		limits, err := limitsOf(slices.DeleteFunc(f.limits, func(text string) bool { return text == "none" }))
		if err != nil {
			return err
		}
		limits = append([]client.Limit{}, limits...) // an empty list replaces, too
		patch.Limits = given(q.c, "limit", &limits)
		if f.starts+f.ends != "" {
			found, err := q.GetCampaign(ctx, q.id)
			if err != nil {
				return err
			}
			patch.StartsAt, patch.EndsAt, err = f.window(found.TimeZone)
			if err != nil {
				return err
			}
		}
		if patch == (client.CampaignPatch{}) {
			return usagef("nothing to change: give --total or another flag")
		}
		return q.show(q.PatchCampaign(ctx, q.id, patch))
	})
	f.add(c, "units; below what is claimed it takes nothing back", "",
		", once for each: they replace all limits; none: no limit", ", or nothing")
	c.Flags().Int64Var(&lowStock, "low-stock-at", 0, "warn from so many units left; 0: never")
	return c
}

func newCampaignOpen(env Env) *cobra.Command {
	return aboutCampaign(env, cobra.Command{
		Use: "open CAMPAIGN", Short: "Take claims of a paused campaign again", Example: "  dibs campaign open spring",
	}, func(ctx context.Context, q *question[client.Campaign]) error {
		return q.show(q.PatchCampaign(ctx, q.id, client.CampaignPatch{Status: new(client.StatusOpen)}))
	})
}

func newCampaignPause(env Env) *cobra.Command {
	var all bool
	c := aboutCampaign(env, cobra.Command{
		Use: "pause CAMPAIGN | --all", Short: "Stop claims of a campaign, or of all; they can be opened again",
		Long: "Works within a second, also while MySQL is away.",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return asUsed(c, args)
		},
		Example: "  dibs campaign pause spring\n  dibs campaign pause --all",
	}, func(ctx context.Context, q *question[client.Campaign]) error {
		switch {
		case all == (q.id != ""):
			return missing(q.c, "CAMPAIGN or --all")
		case all:
			return pauseAll(ctx, q)
		}
		return q.show(q.PatchCampaign(ctx, q.id, client.CampaignPatch{Status: new(client.StatusPaused)}))
	})
	c.Flags().BoolVar(&all, "all", false, "every open campaign")
	return c
}

func pauseAll(ctx context.Context, q *question[client.Campaign]) error {
	done, err := q.PauseCampaigns(ctx)
	if err != nil {
		return err
	}
	ids := printer.View[client.PausedCampaigns]{Header: []string{"paused"}, Rows: func(p *client.PausedCampaigns, row func(...any)) {
		for _, id := range p.Paused {
			row(id)
		}
	}}
	if err := printer.Print(q.out.W, q.out.Form, ids, done); err != nil || done.Complete {
		return err
	}
	return errors.New("MySQL does not answer: campaigns that Redis does not hold are not paused; they take no " +
		"claims before it is back. Repeat this then")
}

func newCampaignClose(env Env) *cobra.Command {
	var confirmed string
	c := aboutCampaign(env, cobra.Command{
		Use: "close CAMPAIGN", Short: "Close a campaign for ever; what is left of packets returns to the sender",
		Example: "  dibs campaign close spring --confirm spring",
	}, func(ctx context.Context, q *question[client.Campaign]) error {
		if confirmed != q.id {
			return usagef("closing cannot be undone: repeat the id with --confirm %s", q.id)
		}
		return q.show(q.CloseCampaign(ctx, q.id))
	})
	c.Flags().StringVar(&confirmed, "confirm", "", "the id once more")
	return c
}

func newCampaignDelete(env Env) *cobra.Command {
	return aboutCampaign(env, cobra.Command{
		Use: "delete CAMPAIGN", Short: "Delete a campaign that never had claims, and show what it was",
		Example: "  dibs campaign delete spring",
	}, func(ctx context.Context, q *question[client.Campaign]) error {
		was, err := q.GetCampaign(ctx, q.id)
		if err == nil {
			err = q.DeleteCampaign(ctx, q.id)
		}
		return q.show(was, err)
	})
}
