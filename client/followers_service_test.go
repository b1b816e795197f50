package client_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/client"
)

// A follower reads a ledger page by page, and the whole of it, and gets the same events.
func TestService_AFollowerReadsALedger(t *testing.T) {
	t.Parallel()
	c := connect(t, client.Config{BaseURL: serve(t)})
	id := coupon(t, c, 9, 0)
	claim, err := c.Claim(t.Context(), client.ClaimRequest{CampaignID: id, UserID: "ada", Quantity: 2})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // its row may be on its way
		_, err := c.Release(t.Context(), claim.ID, "")
		return err == nil
	}, time.Minute, 50*time.Millisecond)

	var events []client.LedgerEvent
	require.Eventually(t, func() bool {
		events = nil
		for after := ""; ; {
			page, err := c.Ledger(t.Context(), id, after, 1)
			if err != nil || len(page.Events) != 1 {
				return err == nil && len(page.Events) == 0 && len(events) == 2
			}
			events = append(events, page.Events...)
			after = page.Next
		}
	}, time.Minute, 50*time.Millisecond)
	require.Equal(t, []string{"claim.accepted", "claim.released"}, []string{events[0].Type, events[1].Type})
	require.Equal(t, []string{claim.ID, claim.ID}, []string{events[0].ID, events[1].ClaimID})
	require.Equal(t, []int64{2, 2}, []int64{events[0].Quantity, events[1].Quantity})
	require.Equal(t, "ada", events[0].UserID)

	var all []client.LedgerEvent
	for e, err := range c.AllLedger(t.Context(), id) {
		require.NoError(t, err)
		all = append(all, e)
	}
	require.Equal(t, events, all)
	_, err = c.Ledger(t.Context(), "no-such", "", 1)
	require.ErrorIs(t, err, client.ErrCampaignNotFound)
}
