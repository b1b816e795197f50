package cmd

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"dibs/client"
	"dibs/internal/printer"
	"dibs/internal/sleep"
)

func aboutClaim(env Env, c cobra.Command, ask func(context.Context, *question[client.Claim]) error) *cobra.Command {
	return overHTTP(env, c, claimView, ask)
}

var claimView = printer.View[client.Claim]{
	Header: []string{"id", "user", "units", "seq", "status", "claimed at", "order"}, Wide: 1,
	Rows: func(c *client.Claim, row func(...any)) {
		row(c.ID, c.UserID, c.Quantity, c.Seq, c.Status, c.ClaimedAt, c.OrderID)
	},
}

// checkKey refuses an empty key, such as of a variable that isn't set: the
// client would make one up, and a repetition would be another request.
func checkKey(c *cobra.Command, key string) error {
	return must("--key", key != "" || !c.Flags().Changed("key"), "1 to 255 characters", "empty")
}

func newClaim(env Env) *cobra.Command {
	var req client.ClaimRequest
	c := aboutClaim(env, cobra.Command{
		Use: "claim CAMPAIGN", Short: "Claim units for a user, over HTTP", Example: "  dibs claim spring --user ada --quantity 2 --key order-7",
	}, func(ctx context.Context, q *question[client.Claim]) error {
		// the client takes 0 for 1
		if err := cmp.Or(must("--quantity", req.Quantity != 0, "1 or more", req.Quantity), checkKey(q.c, req.Key)); err != nil {
			return err
		}
		req.CampaignID = q.id
		return q.show(q.Claim(ctx, req))
	})
	c.Flags().StringVar(&req.UserID, "user", "", "the user")
	c.Flags().Int64Var(&req.Quantity, "quantity", 1, "units, all of them or none")
	c.Flags().StringToStringVar(&req.Subjects, "subject", nil, "what limits are by beside the user, such as device=d1, once for each")
	c.Flags().StringVar(&req.Key, "key", "", "idempotency key; made up unless given")
	_ = c.MarkFlagRequired("user")
	return c
}

func newRedeem(env Env) *cobra.Command {
	var order string
	c := aboutClaim(env, cobra.Command{
		Use: "redeem CLAIM", Short: "Have an order redeem a claim, over HTTP",
		Long:    "The same order may do so again. The claim can't be released then, unless it is reopened.",
		Example: "  dibs redeem 019a7b1c-8f3e-7c41-a1f2-0d6c1f6e2b11 --order 4711",
	}, func(ctx context.Context, q *question[client.Claim]) error {
		return q.show(q.Redeem(ctx, q.id, order))
	})
	c.Flags().StringVar(&order, "order", "", "the order")
	_ = c.MarkFlagRequired("order")
	return c
}

func newRelease(env Env) *cobra.Command {
	var reason string
	c := aboutClaim(env, cobra.Command{
		Use: "release CLAIM", Short: "Give the units of a claim back, over HTTP",
		Long:    "For a claim that is not redeemed. Its units are for sale again.",
		Example: "  dibs release 019a7b1c-8f3e-7c41-a1f2-0d6c1f6e2b11 --reason 'paid too late'",
	}, func(ctx context.Context, q *question[client.Claim]) error {
		return q.show(q.Release(ctx, q.id, reason))
	})
	c.Flags().StringVar(&reason, "reason", "", "why, for the books")
	return c
}

func newReopen(env Env) *cobra.Command {
	var order, reason string
	c := aboutClaim(env, cobra.Command{
		Use: "reopen CLAIM", Short: "Take back that an order redeemed a claim, over HTTP",
		Long:    "For an order that was refunded. The claim is claimed again and its hold starts again; once for each order.",
		Example: "  dibs reopen 019a7b1c-8f3e-7c41-a1f2-0d6c1f6e2b11 --order 4711 --reason refunded",
	}, func(ctx context.Context, q *question[client.Claim]) error {
		return q.show(q.Reopen(ctx, q.id, order, reason))
	})
	c.Flags().StringVar(&order, "order", "", "the order that redeemed it")
	_ = c.MarkFlagRequired("order")
	c.Flags().StringVar(&reason, "reason", "", "why, for the books")
	return c
}

func newExtend(env Env) *cobra.Command {
	var by time.Duration
	var key string
	c := aboutClaim(env, cobra.Command{
		Use: "extend CLAIM", Short: "Have the hold of a claim last longer, over HTTP",
		Long:    "Up to what its campaign allows (hold_max).",
		Example: "  dibs extend 019a7b1c-8f3e-7c41-a1f2-0d6c1f6e2b11 --by 10m",
	}, func(ctx context.Context, q *question[client.Claim]) error {
		if err := checkKey(q.c, key); err != nil {
			return err
		}
		return q.show(q.Extend(ctx, q.id, by, key))
	})
	c.Flags().DurationVar(&by, "by", 0, "how much longer, such as 10m")
	_ = c.MarkFlagRequired("by")
	c.Flags().StringVar(&key, "key", "", "idempotency key; made up unless given")
	return c
}

// watchAgain is the pause before a broken watch is retried.
const watchAgain = 2 * time.Second

func newWatch(env Env) *cobra.Command {
	var once bool
	c := overHTTP(env, cobra.Command{
		Use: "watch CAMPAIGN", Short: "Show the stock of a campaign live, a line a second, until Ctrl-C",
		Example: "  dibs watch spring\n  dibs watch spring --once -o json",
	}, printer.View[client.LiveStock]{
		Header: []string{"at", "remaining", "claimed", "backlog", "accepted/s"},
		Rows: func(s *client.LiveStock, row func(...any)) {
			row(s.At, s.Remaining, s.Claimed, s.Backlog, s.AcceptedPerS)
		},
	}, func(ctx context.Context, q *question[client.LiveStock]) error {
		for {
			for stock, err := range q.Watch(ctx, q.id) {
				refused, isRefused := errors.AsType[*client.Problem](err)
				isFinal := once || isRefused && refused.Status < http.StatusInternalServerError
				if err != nil && !isFinal {
					printer.Printf(env.Stderr, "dibs: %s; trying again\n", sentence(withRemedy(err)))
					break
				}
				if err := q.show(stock, err); err != nil || once {
					return err
				}
			}
			if sleep.For(ctx, watchAgain) != nil {
				return nil // it was stopped
			}
		}
	})
	c.Flags().BoolVar(&once, "once", false, "show one line and end")
	return c
}
