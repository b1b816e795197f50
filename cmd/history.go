package cmd

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"dibs/client"
	"dibs/internal/printer"
	"dibs/models/event"
)

// eventView shows claims' events. JSON has the complete event.
var eventView = printer.View[json.RawMessage]{
	Header: []string{"at", "claim", "user", "units", "type", "campaign", "amount", "currency", "order", "reason"}, Wide: 5,
	Rows: func(raw *json.RawMessage, row func(...any)) {
		var e event.Event
		_ = json.Unmarshal(*raw, &e) // missing fields stay empty
		claim := e.ClaimID
		if claim == "" {
			claim = e.ID // of claim.accepted
		}
		row(e.At, claim, e.UserID, e.Quantity, e.Type, e.CampaignID, e.Amount, e.Currency, e.OrderID, e.Reason)
	},
}

func newLedger(env Env) *cobra.Command {
	return overHTTP(env, cobra.Command{
		Use: "ledger CAMPAIGN", Short: "List everything that happened to a campaign's claims, in order, over HTTP",
		Long:    "JSON and CSV come as they are read, however many events there are.",
		Example: "  dibs ledger spring\n  dibs ledger spring -o csv > spring.csv",
	}, eventView, func(ctx context.Context, q *question[json.RawMessage]) error {
		return q.out.PrintAll(q.Ledger(ctx, q.id))
	})
}

func newClaims(env Env) *cobra.Command {
	var status string
	c := aboutClaim(env, cobra.Command{
		Use: "claims CAMPAIGN", Short: "List the claims of a campaign, newest first, over HTTP",
		Example: "  dibs claims spring --status redeemed\n  dibs claims spring -o csv > claims.csv",
	}, func(ctx context.Context, q *question[client.Claim]) error {
		return q.out.PrintAll(q.CampaignClaims(ctx, q.id, client.ClaimStatus(status)))
	})
	c.Flags().StringVar(&status, "status", "", "claimed, redeemed, released or expired; "+allUnlessGiven)
	return c
}
