package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/client"
)

func TestService_OperatorsFindCampaignsAndSeeTheStockLive(t *testing.T) {
	t.Parallel()
	c := connect(t, client.Config{BaseURL: serve(t)})
	id := coupon(t, c, 9, 0)
	coupon(t, c, 5, 0)
	page, err := c.FindCampaigns(t.Context(), client.CampaignFilter{Text: id, Status: client.StatusOpen}, client.Page{})
	require.NoError(t, err)
	require.Len(t, page.Campaigns, 1)
	require.Equal(t, id, page.Campaigns[0].ID)
	none, err := c.FindCampaigns(t.Context(), client.CampaignFilter{Text: id, Status: client.StatusPaused}, client.Page{})
	require.NoError(t, err)
	require.Empty(t, none.Campaigns)

	_, err = c.Claim(t.Context(), client.ClaimRequest{CampaignID: id, UserID: "ada"})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for stock, err := range c.Watch(ctx, id) {
		require.NoError(t, err)
		require.Equal(t, id, stock.CampaignID)
		if stock.Claimed == 1 {
			require.Equal(t, int64(8), stock.Remaining)
			break
		}
	}
	require.NoError(t, ctx.Err(), "the claim was seen")
	for _, err := range c.Watch(t.Context(), "no-such") {
		require.ErrorIs(t, err, client.ErrCampaignNotFound)
	}
	c.Disconnect()
}
