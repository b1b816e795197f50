package cmd

import (
	"github.com/spf13/cobra"
)

func newFinance(env Env) *cobra.Command {
	c := role(env, cobra.Command{
		Use:   "finance",
		Short: "Run the reference finance service: credit what packets gave, one entry a claim",
		Long: `Reads the claim streams in the consumer group "finance" and keeps the tables accounts and
account_entries: what a packet gave is credited to who took it, what was left over when a
campaign closed to its sender, once each, whatever is redelivered. Coupons move no money
and are passed over.

Its database is that of --finance-dsn, or else Dibs' own. While it is away events wait in
Redis; they are kept there for every registered group, see 'dibs groups'. An event that
can never be credited is parked with the reason and holds nothing up: see 'dibs finance
parked' and 'dibs finance replay'. docs/finance.md describes how to write such a service
yourself, in any language.`,
		Example: `  dibs finance --name finance-1 --metrics-addr 127.0.0.1:9093
  DIBS_FINANCE_DSN='books:secret@tcp(10.0.0.7:3306)/books' dibs finance`,
	})
	c.AddCommand(newParked(env), newReplay(env), newDiscard(env))
	return c
}
