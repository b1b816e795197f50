package cmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"dibs/client"
)

// ErrNotFinal says that events of the day may be missing in a settlement.
var ErrNotFinal = errors.New("cmd: the settlement is not final")

func newSettlement(env Env) *cobra.Command {
	var date, zone string
	c := overHTTP(env, cobra.Command{
		Use: "settlement", Short: "Add up one day: claims, units and money by campaign, currency and type of event",
		Long: `Asks the API of --url, with a viewer's --token, for the sums of a day of a time zone, from the first moment
that shows its date. Amounts are minor units of ISO 4217: 888800 of EUR are 8,888.00.

Exit code 0: the sums are final. 1: events of the day may be missing; they are printed all the same, and what is missing is said.`,
		Example: "  dibs settlement --date 2027-01-31 --time-zone Europe/Berlin -o csv",
	}, false, func(ctx context.Context, api *client.Client, _ string, as outputFlag) error {
		if date == "" {
			return fmt.Errorf("%w: --date is missing: which day?", ErrUsage)
		}
		s, err := api.Settlement(ctx, date, zone)
		if err != nil {
			return err
		}
		rows := make([]table.Row, len(s.Sums))
		for i, sum := range s.Sums {
			rows[i] = table.Row{s.Date, sum.CampaignID, sum.Currency, sum.Type, sum.Claims, sum.Units, sum.Amount, s.Final}
		}
		header := table.Row{"date", "campaign", "currency", "type", "claims", "units", "amount", "final"}
		err = printAs(env.Stdout, as, []client.Settlement{s}, header, rows)
		if err != nil || s.Final {
			return err
		}
		for _, one := range s.Missing {
			_, _ = fmt.Fprintln(env.Stderr, one.CampaignID, one.Reason)
		}
		return ErrNotFinal
	})
	c.Flags().StringVar(&date, "date", "", "the day, such as 2027-01-31; required")
	c.Flags().StringVar(&zone, "time-zone", "UTC", "whose midnights begin and end the day, an IANA name")
	return c
}
