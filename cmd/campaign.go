package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"dibs/client"
	"dibs/internal/config"
	"dibs/models"
)

// overHTTP is a command that asks the API of DIBS_URL and prints in the form of --output. An id that it takes is its one argument.
func overHTTP(env Env, c cobra.Command, takesID bool,
	run func(ctx context.Context, api *client.Client, id string, as outputFlag) error) *cobra.Command {
	var as outputFlag
	made := command(env, c, func(ctx context.Context, c *cobra.Command, cfg *config.Config) error {
		if err := as.check(); err != nil {
			return err
		}
		api, err := remote(cfg)
		if err != nil {
			return err
		}
		return run(ctx, api, c.Flags().Arg(0), as)
	})
	what := "campaign"
	if strings.HasSuffix(c.Use, " CLAIM") {
		what = "claim"
	}
	if takesID {
		made.Args = func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%w: name one %s", ErrUsage, what)
			}
			return nil
		}
	}
	as.add(made)
	return made
}

func newCampaign(env Env) *cobra.Command {
	c := &cobra.Command{
		Use: "campaign", Short: "Create, list, show and change campaigns, over HTTP",
		Long: "Asks the API of DIBS_URL with DIBS_TOKEN: a viewer's to read, an admin's to change.",
		Example: "  dibs campaign create spring --total 1000 --per-user 2\n  dibs campaign list --status open\n" +
			"  dibs campaign set spring --total 1500",
		Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newCampaignCreate(env), newCampaignList(env), newCampaignGet(env), newCampaignSet(env), newCampaignClose(env),
		newCampaignPause(env), newCampaignOpen(env))
	return c
}

func newCampaignCreate(env Env) *cobra.Command {
	var n client.NewCampaign
	var kind string
	var total, perUser int64
	var limits []string
	var times windowFlags
	c := overHTTP(env, cobra.Command{
		Use: "create ID", Short: "Create a campaign; the same again changes nothing",
		Example: "  dibs campaign create spring --total 1000 --per-user 2\n  dibs campaign create rain --kind packet --currency EUR",
	}, true, func(ctx context.Context, api *client.Client, id string, as outputFlag) error {
		n.ID = id
		n.Kind = client.Kind(kind)
		if n.Kind == client.KindCoupon {
			n.Total = &total
		}
		if perUser > 0 {
			n.PerUser = &perUser
		}
		var err error
		n.Limits, err = limitsOf(limits)
		if err != nil {
			return err
		}
		n.StartsAt, n.EndsAt, err = times.read(n.TimeZone)
		if err != nil {
			return err
		}
		made, _, err := api.CreateCampaign(ctx, n)
		if err != nil {
			return err
		}
		return printCampaigns(env, as, made)
	})
	flags := c.Flags()
	flags.StringVar(&kind, "kind", "coupon", "coupon or packet")
	flags.StringVar(&n.Name, "title", "", "what people call it")
	flags.StringVar(&n.Public, "public", "", "what anybody may read without a token: level or count of what is left; nothing unless given")
	flags.Int64Var(&total, "total", 0, "units; of a coupon")
	flags.Int64Var(&perUser, "per-user", 0, "most units of one user; 0: no limit, of packets 1")
	flags.Int64Var(&n.PerUserPerDay, "per-user-per-day", 0, "most units of one user in a day; 0: no limit")
	flags.StringArrayVar(&limits, "limit", nil, "a limit such as device:day:1 or user:hour:2, once for each")
	flags.StringVar(&n.TimeZone, "time-zone", "", "in which the windows of limits begin; UTC unless given")
	flags.StringVar(&n.Currency, "currency", "", "ISO 4217; of packets")
	times.add(c)
	return c
}

// windowFlags are when a campaign starts and ends, as clocks in its zone show it.
type windowFlags struct{ starts, ends string }

func (w *windowFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&w.starts, "starts-at", "", "such as 2027-01-31T18:00 in the campaign's zone, or 2027-01-31T18:00:00Z")
	c.Flags().StringVar(&w.ends, "ends-at", "", "as --starts-at; a time that clocks show twice needs its offset")
}

func (w *windowFlags) read(zoneName string) (starts, ends *time.Time, err error) {
	zone, err := models.LoadZone(cmp.Or(zoneName, "UTC"))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: --time-zone must be an IANA zone such as Europe/Berlin", ErrUsage)
	}
	for _, f := range []struct {
		name, text string
		at         **time.Time
	}{{"--starts-at", w.starts, &starts}, {"--ends-at", w.ends, &ends}} {
		if f.text == "" {
			continue
		}
		at, err := models.ParseLocal(f.name, f.text, zone, "")
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrUsage, err)
		}
		*f.at = &at
	}
	return starts, ends, nil
}

func newCampaignList(env Env) *cobra.Command {
	var filter client.CampaignFilter
	var status string
	c := overHTTP(env, cobra.Command{
		Use: "list", Short: "List campaigns, by id", Example: "  dibs campaign list --status open --search spring\n  dibs campaign list -o csv",
	}, false, func(ctx context.Context, api *client.Client, _ string, as outputFlag) error {
		filter.Status = client.Status(status)
		var all []client.Campaign
		for page := (client.Page{Limit: 1000}); ; {
			got, err := api.FindCampaigns(ctx, filter, page)
			if err != nil {
				return err
			}
			all = append(all, got.Campaigns...)
			page.Cursor = got.NextCursor
			if page.Cursor == "" {
				return printCampaigns(env, as, all...)
			}
		}
	})
	c.Flags().StringVar(&filter.Text, "search", "", "part of the id or the name")
	c.Flags().StringVar(&status, "status", "", "open, paused or closed")
	return c
}

func newCampaignGet(env Env) *cobra.Command {
	return overHTTP(env, cobra.Command{Use: "get ID", Short: "Show a campaign and its stock", Example: "  dibs campaign get spring -o json"},
		true, func(ctx context.Context, api *client.Client, id string, as outputFlag) error {
			found, err := api.GetCampaign(ctx, id)
			if err != nil {
				return err
			}
			stock, err := api.Stock(ctx, id)
			if err != nil {
				return err
			}
			both := []struct {
				Campaign client.Campaign `json:"campaign"`
				Stock    client.Stock    `json:"stock"`
			}{{found, stock}}
			return printAs(env.Stdout, as, both, table.Row{"id", "status", "total", "remaining", "claimed", "backlog", "drift"},
				[]table.Row{{found.ID, found.Status, stock.Total, stock.Remaining, stock.Claimed, stock.Backlog, stock.Drift}})
		})
}

func newCampaignSet(env Env) *cobra.Command {
	var total, perUser, perDay, lowStock int64
	var limits []string
	var times windowFlags
	var title, public string
	var c *cobra.Command
	c = overHTTP(env, cobra.Command{
		Use: "set ID", Short: "Change a campaign, in force for the next claim", Example: "  dibs campaign set spring --total 1500",
	}, true, func(ctx context.Context, api *client.Client, id string, as outputFlag) error {
		var patch client.CampaignPatch
		for _, f := range []struct {
			name  string
			value *int64
			field **int64
		}{
			{"total", &total, &patch.Total}, {"per-user", &perUser, &patch.PerUser}, {"per-user-per-day", &perDay, &patch.PerUserPerDay},
			{"low-stock-at", &lowStock, &patch.LowStockAt},
		} {
			if c.Flags().Changed(f.name) {
				*f.field = f.value
			}
		}
		if c.Flags().Changed("title") {
			patch.Name = &title
		}
		if c.Flags().Changed("public") {
			patch.Public = new(strings.TrimPrefix(public, "nothing"))
		}
		if c.Flags().Changed("limit") {
			all, err := limitsOf(slices.DeleteFunc(limits, func(text string) bool { return text == "none" }))
			if err != nil {
				return err
			}
			all = append([]client.Limit{}, all...)
			patch.Limits = &all
		}
		if times != (windowFlags{}) {
			found, err := api.GetCampaign(ctx, id)
			if err != nil {
				return err
			}
			patch.StartsAt, patch.EndsAt, err = times.read(found.TimeZone)
			if err != nil {
				return err
			}
		}
		if patch == (client.CampaignPatch{}) {
			return fmt.Errorf("%w: nothing to change: give --total or another flag", ErrUsage)
		}
		return patchCampaign(ctx, env, api, id, patch, as)
	})
	c.Flags().StringVar(&title, "title", "", "what people call it")
	c.Flags().StringVar(&public, "public", "", "what anybody may read without a token: level or count of what is left, or nothing")
	c.Flags().Int64Var(&total, "total", 0, "units; below what is claimed it takes nothing back")
	c.Flags().Int64Var(&perUser, "per-user", 0, "most units of one user; 0: no limit")
	c.Flags().Int64Var(&perDay, "per-user-per-day", 0, "most units of one user in a day; 0: no limit")
	c.Flags().StringArrayVar(&limits, "limit", nil, "a limit such as device:day:1, once for each: they replace all limits; none: no limit")
	c.Flags().Int64Var(&lowStock, "low-stock-at", 0, "warn from so many units left; 0: never")
	times.add(c)
	return c
}

func newCampaignOpen(env Env) *cobra.Command {
	open := client.StatusOpen
	return overHTTP(env, cobra.Command{
		Use: "open ID", Short: "Take claims of a paused campaign again", Example: "  dibs campaign open spring",
	}, true, func(ctx context.Context, api *client.Client, id string, as outputFlag) error {
		return patchCampaign(ctx, env, api, id, client.CampaignPatch{Status: &open}, as)
	})
}

func newCampaignPause(env Env) *cobra.Command {
	var all bool
	paused := client.StatusPaused
	c := overHTTP(env, cobra.Command{
		Use: "pause ID | --all", Short: "Stop claims of a campaign, or of all; they can be opened again",
		Long:    "Works within a second, also while MySQL is away.",
		Example: "  dibs campaign pause spring\n  dibs campaign pause --all",
	}, false, func(ctx context.Context, api *client.Client, id string, as outputFlag) error {
		if all == (id != "") {
			return fmt.Errorf("%w: name one campaign, or --all", ErrUsage)
		}
		if !all {
			return patchCampaign(ctx, env, api, id, client.CampaignPatch{Status: &paused}, as)
		}
		done, err := api.PauseCampaigns(ctx)
		if err != nil {
			return err
		}
		rows := make([]table.Row, len(done.Paused))
		for i, id := range done.Paused {
			rows[i] = table.Row{id}
		}
		if err := printAs(env.Stdout, as, []client.PausedCampaigns{done}, table.Row{"paused"}, rows); err != nil || done.Complete {
			return err
		}
		return errors.New("MySQL does not answer: campaigns that Redis does not hold are not paused; they take no claims before it is back. Repeat this then")
	})
	c.Args = cobra.MaximumNArgs(1)
	c.Flags().BoolVar(&all, "all", false, "every open campaign")
	return c
}

func newCampaignClose(env Env) *cobra.Command {
	var confirmed string
	c := overHTTP(env, cobra.Command{
		Use: "close ID", Short: "Close a campaign for ever; what is left of packets returns to the sender",
		Example: "  dibs campaign close spring --confirm spring",
	}, true, func(ctx context.Context, api *client.Client, id string, as outputFlag) error {
		if confirmed != id {
			return fmt.Errorf("%w: closing cannot be undone: repeat the id with --confirm %s", ErrUsage, id)
		}
		closed, err := api.CloseCampaign(ctx, id)
		if err != nil {
			return err
		}
		return printCampaigns(env, as, closed)
	})
	c.Flags().StringVar(&confirmed, "confirm", "", "the id once more")
	return c
}

func patchCampaign(ctx context.Context, env Env, api *client.Client, id string, patch client.CampaignPatch, as outputFlag) error {
	changed, err := api.PatchCampaign(ctx, id, patch)
	if err != nil {
		return err
	}
	return printCampaigns(env, as, changed)
}

func printCampaigns(env Env, as outputFlag, all ...client.Campaign) error {
	var rows []table.Row
	for i := range all {
		c := &all[i]
		rows = append(rows, table.Row{c.ID, c.Kind, c.Status, c.Total, c.PerUser, c.PerUserPerDay, c.Name})
	}
	return printAs(env.Stdout, as, all, table.Row{"id", "kind", "status", "total", "per user", "per day", "name"}, rows)
}

func newClaim(env Env) *cobra.Command {
	var req client.ClaimRequest
	c := overHTTP(env, cobra.Command{
		Use: "claim CAMPAIGN", Short: "Claim units for a user, over HTTP", Example: "  dibs claim spring --user ada --quantity 2 --key order-7",
	}, true, func(ctx context.Context, api *client.Client, id string, as outputFlag) error {
		if req.UserID == "" {
			return fmt.Errorf("%w: --user is missing", ErrUsage)
		}
		req.CampaignID = id
		claim, err := api.Claim(ctx, req)
		return printClaim(env, as, &claim, err)
	})
	c.Flags().StringVar(&req.UserID, "user", "", "who claims")
	c.Flags().Int64Var(&req.Quantity, "quantity", 1, "units, all of them or none")
	c.Flags().StringToStringVar(&req.Subjects, "subject", nil, "what limits are by beside the user, such as device=d1, once for each")
	c.Flags().StringVar(&req.Key, "key", "", "idempotency key; made up unless given")
	return c
}

func printClaim(env Env, as outputFlag, claim *client.Claim, err error) error {
	if err != nil {
		return err
	}
	return printAs(env.Stdout, as, []client.Claim{*claim}, table.Row{"id", "user", "units", "seq", "status", "claimed at"},
		[]table.Row{{claim.ID, claim.UserID, claim.Quantity, claim.Seq, claim.Status, claim.ClaimedAt.UTC().Format(models.TimeLayout)}})
}

func newReopen(env Env) *cobra.Command {
	var order, reason string
	c := overHTTP(env, cobra.Command{
		Use: "reopen CLAIM", Short: "Take back that an order redeemed a claim, over HTTP",
		Long:    "For an order that was refunded. The claim is claimed again and its hold begins anew; once for each order.",
		Example: "  dibs reopen 019a7b1c-8f3e-7c41-a1f2-0d6c1f6e2b11 --order 4711 --reason refunded",
	}, true, func(ctx context.Context, api *client.Client, id string, as outputFlag) error {
		if order == "" {
			return fmt.Errorf("%w: --order is missing", ErrUsage)
		}
		claim, err := api.Reopen(ctx, id, order, reason)
		return printClaim(env, as, &claim, err)
	})
	c.Flags().StringVar(&order, "order", "", "the order that redeemed it")
	c.Flags().StringVar(&reason, "reason", "", "why, for the books")
	return c
}

func newExtend(env Env) *cobra.Command {
	var by time.Duration
	var key string
	c := overHTTP(env, cobra.Command{
		Use: "extend CLAIM", Short: "Have the hold of a claim last longer, over HTTP",
		Long:    "Up to what its campaign allows (hold_max).",
		Example: "  dibs extend 019a7b1c-8f3e-7c41-a1f2-0d6c1f6e2b11 --by 10m",
	}, true, func(ctx context.Context, api *client.Client, id string, as outputFlag) error {
		if by <= 0 {
			return fmt.Errorf("%w: --by is missing, such as 10m", ErrUsage)
		}
		claim, err := api.Extend(ctx, id, by, key)
		return printClaim(env, as, &claim, err)
	})
	c.Flags().DurationVar(&by, "by", 0, "how much longer, such as 10m")
	c.Flags().StringVar(&key, "key", "", "idempotency key; made up unless given")
	return c
}

// watchAgain is how long a broken watch waits before it asks again.
const watchAgain = 2 * time.Second

func newWatch(env Env) *cobra.Command { //nolint:gocognit // two loops, of tries and of lines
	var once bool
	c := overHTTP(env, cobra.Command{
		Use: "watch CAMPAIGN", Short: "Show the stock of a campaign live, a line a second, until Ctrl-C",
		Example: "  dibs watch spring\n  dibs watch spring --once -o json",
	}, true, func(ctx context.Context, api *client.Client, id string, as outputFlag) error {
		header := table.Row{"at", "remaining", "claimed", "backlog", "accepted/s"}
		show := func(stock client.LiveStock) error {
			row := table.Row{stock.At.UTC().Format(models.TimeLayout), stock.Remaining, stock.Claimed, stock.Backlog, stock.AcceptedPerS}
			defer func() { header = nil }() // at the top alone
			return printAs(env.Stdout, as, []client.LiveStock{stock}, header, []table.Row{row})
		}
		for {
			for stock, err := range api.Watch(ctx, id) {
				refused, isRefused := errors.AsType[*client.Problem](err)
				isFinal := once || isRefused && refused.Status < http.StatusInternalServerError
				if err != nil && !isFinal {
					_, _ = fmt.Fprintln(env.Stderr, "dibs: "+err.Error()+"; trying again")
					break
				}
				if err == nil {
					err = show(stock)
				}
				if err != nil || once {
					return err
				}
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(watchAgain):
			}
		}
	})
	c.Flags().BoolVar(&once, "once", false, "show one line and end")
	return c
}
