package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"dibs/client"
	"dibs/internal/printer"
)

// ErrNotFinal means the settlement may lack events of the day.
var ErrNotFinal = errors.New("cmd: the settlement is not final")

func newSettlement(env Env) *cobra.Command {
	var date, zone string
	c := overHTTP(env, cobra.Command{
		Use: "settlement", Short: "Add up one day: claims, units and money by campaign, currency and type of event",
		Long: `Asks the API of --url, with a viewer's --token, for the sums of a day of a time zone, from
the first moment that shows its date. Amounts are minor units of ISO 4217: 888800 of EUR
are 8,888.00.

Exit code 0: the sums are final. 1: events of the day may be missing; they are printed all
the same, and what is missing is said.`,
		Example: "  dibs settlement --date 2027-01-31 --time-zone Europe/Berlin -o csv",
	}, printer.View[client.Settlement]{
		Header: []string{"date", "campaign", "currency", "type", "claims", "units", "amount", "final"},
		Rows: func(s *client.Settlement, row func(...any)) {
			for _, sum := range s.Sums {
				row(s.Date, sum.CampaignID, sum.Currency, sum.Type, sum.Claims, sum.Units, sum.Amount, s.Final)
			}
		},
	}, func(ctx context.Context, q *question[client.Settlement]) error {
		s, err := q.Settlement(ctx, date, zone)
		if err := q.show(s, err); err != nil || s.Final {
			return err
		}
		err = ErrNotFinal
		for _, one := range s.Missing {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(one.CampaignID+" "+one.Reason))
		}
		return err
	})
	c.Flags().StringVar(&date, "date", "", "the day, such as 2027-01-31; required")
	c.Flags().StringVar(&zone, "time-zone", "UTC", "whose midnights begin and end the day, an IANA name")
	_ = c.MarkFlagRequired("date")
	return c
}
