package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dibs/client"
)

const (
	adminToken, storefrontToken, viewerToken = "the-admin", "the-storefront", "the-viewer"
)

func withTokens(t *testing.T) string {
	t.Helper()
	return serve(t, "DIBS_ADMIN_TOKEN="+adminToken, "DIBS_STOREFRONT_TOKEN="+storefrontToken, "DIBS_VIEWER_TOKEN="+viewerToken)
}

func TestService_EveryCall(t *testing.T) {
	t.Parallel()
	url := withTokens(t)
	admin := connect(t, client.Config{BaseURL: url + "/", Token: adminToken})
	shop := connect(t, client.Config{BaseURL: url, Token: storefrontToken})
	ctx := t.Context()

	starts, ends := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond), time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	asked := client.NewCampaign{
		ID: "full", Kind: client.KindCoupon, Name: "n", Total: new(int64(5)), PerUser: new(int64(3)), PerUserPerDay: 2,
		TimeZone: "Asia/Kathmandu", StartsAt: &starts, EndsAt: &ends, LowStockAt: 1, Currency: "EUR", SenderID: "s", HoldFor: client.Duration(15 * time.Minute),
	}
	for i := range 2 {
		made, created, err := admin.CreateCampaign(ctx, asked)
		require.NoError(t, err)
		require.Equal(t, i == 0, created)
		sameAsSent(t, url+"/v1/campaigns/full", adminToken, made)
	}
	refused, err := shop.PatchCampaign(ctx, "full", client.CampaignPatch{Status: new(client.StatusPaused)})
	require.ErrorIs(t, err, client.ErrForbidden)
	require.Zero(t, refused)
	change := client.CampaignPatch{NoStart: true, EndsAt: new(ends.Add(time.Hour)), Total: new(int64(6))}
	patched, err := admin.PatchCampaign(ctx, "full", change)
	require.NoError(t, err)
	require.Nil(t, patched.StartsAt)
	require.Equal(t, ends.Add(time.Hour), *patched.EndsAt)
	require.Equal(t, []int64{6, 3}, []int64{patched.Total, patched.PerUser})
	got, err := shop.GetCampaign(ctx, "full")
	require.NoError(t, err)
	require.Equal(t, patched, got)

	claim, err := shop.Claim(ctx, client.ClaimRequest{CampaignID: "full", UserID: "../a user/%", Quantity: 2, Key: "k"})
	require.NoError(t, err)
	require.False(t, claim.Replayed)
	require.WithinDuration(t, claim.ClaimedAt.Add(15*time.Minute), *claim.ExpiresAt, 0)
	sameAsSent(t, url+"/v1/claims/"+claim.ID, storefrontToken, claim)
	again, err := shop.Claim(ctx, client.ClaimRequest{CampaignID: "full", UserID: "../a user/%", Quantity: 2, Key: "k"})
	require.NoError(t, err)
	require.True(t, again.Replayed)
	again.Replayed = false
	require.Equal(t, claim, again)
	found, err := shop.GetClaim(ctx, claim.ID)
	require.NoError(t, err)
	require.Equal(t, claim, found)
	for c, err := range shop.AllUserClaims(ctx, "../a user/%", "full") {
		require.NoError(t, err)
		require.Equal(t, claim, c)
	}
	stock, err := admin.Stock(ctx, "full")
	require.NoError(t, err)
	require.Equal(t, []int64{6, 4, 2}, []int64{stock.Total, stock.Remaining, stock.Claimed})

	coupon(t, admin, 1, 0)
	n := 0
	for _, err := range admin.AllCampaigns(ctx, client.CampaignFilter{}) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 2, n)
	page, err := admin.FindCampaigns(ctx, client.CampaignFilter{Text: "full", Status: client.StatusOpen}, client.Page{Limit: 3})
	require.NoError(t, err)
	require.Len(t, page.Campaigns, 1)
	closed, err := admin.CloseCampaign(ctx, "full")
	require.NoError(t, err)
	require.Equal(t, client.StatusClosed, closed.Status)
}

func TestService_RedeemReleaseAndPackets(t *testing.T) {
	t.Parallel()
	url := serve(t)
	c := connect(t, client.Config{BaseURL: url})
	ctx := t.Context()
	id := coupon(t, c, 2, 1)
	claim := func(user string) client.Claim {
		t.Helper()
		made, err := c.Claim(ctx, client.ClaimRequest{CampaignID: id, UserID: user})
		require.NoError(t, err)
		return made
	}
	used, given := claim("u"), claim("v")
	redeemed, err := c.Redeem(ctx, used.ID, "order 1")
	require.NoError(t, err)
	require.Equal(t, "order 1", redeemed.OrderID)
	sameAsSent(t, url+"/v1/claims/"+used.ID, "", redeemed)
	released, err := c.Release(ctx, given.ID, "changed my mind")
	require.NoError(t, err)
	sameAsSent(t, url+"/v1/claims/"+given.ID, "", released)
	_, err = c.Release(ctx, used.ID, "")
	require.ErrorIs(t, err, client.ErrAlreadyRedeemed)
	open, err := c.Reopen(ctx, used.ID, "order 1", "refunded")
	require.NoError(t, err)
	require.Equal(t, client.ClaimClaimed, open.Status)
	_, err = c.Extend(ctx, used.ID, time.Minute, "")
	require.ErrorIs(t, err, client.ErrInvalid, "there is no hold")
	page, err := c.UserClaims(ctx, "u", "", client.Page{})
	require.NoError(t, err)
	require.Equal(t, []client.Claim{open}, page.Claims)
	for stock, err := range c.Watch(ctx, id) {
		require.NoError(t, err)
		require.Equal(t, id, stock.CampaignID)
		if stock.Claimed == 1 {
			break
		}
	}
	for _, err := range c.Watch(ctx, "no-such") {
		require.ErrorIs(t, err, client.ErrCampaignNotFound)
	}

	_, _, err = c.CreateCampaign(ctx, client.NewCampaign{ID: "rain", Kind: client.KindPacket, Currency: "EUR"})
	require.NoError(t, err)
	for range 2 {
		added, err := c.AddPackets(ctx, "rain", client.NewPackets{Packets: []client.Packet{{ID: "a", Amount: 5}, {ID: "b", Amount: 7}}, Key: "k"})
		require.NoError(t, err)
		require.Equal(t, client.PacketsAdded{Count: 2, Amount: 12}, added)
	}
}

// sameAsSent compares a value with the service's JSON: a field that the
// type lacks would be lost.
func sameAsSent[T any](t *testing.T, url, token string, value T) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, res.Body.Close()) }()
	var sent T
	strict := json.NewDecoder(res.Body)
	strict.DisallowUnknownFields()
	require.NoError(t, strict.Decode(&sent))
	require.Equal(t, value, sent)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// patient retries for as long as a test may cut connections.
func patient(url string) client.Config {
	return client.Config{BaseURL: url, Attempts: 100, InitialBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond}
}

// Answers are lost repeatedly after the script ran. The caller must end up
// with one claim, or at its deadline with the key to ask again.
func TestService_ALostAnswerIsAskedForAgainAndIsOneClaim(t *testing.T) {
	t.Parallel()
	url := serve(t)
	direct := connect(t, client.Config{BaseURL: url})
	proxy, proxied := behind(t, url)
	bad := connect(t, patient(proxied))
	id := coupon(t, direct, 10, 0)
	poison(t, proxy, `{"name": "cut", "type": "limit_data", "stream": "downstream", "attributes": {"bytes": 0}}`)
	var g errgroup.Group
	var got [2]client.Claim
	for i := range got {
		g.Go(func() (err error) {
			got[i], err = bad.Claim(t.Context(), client.ClaimRequest{CampaignID: id, UserID: fmt.Sprint("u", i)})
			return err
		})
	}
	require.Eventually(t, func() bool { return claimed(t, direct, id) == 2 }, time.Minute, 5*time.Millisecond)
	require.NoError(t, proxy.Toxics.RemoveToxic(t.Context(), "cut"))
	require.NoError(t, g.Wait())
	require.EqualValues(t, 2, claimed(t, direct, id), "sent many times, made once")
	for _, claim := range got {
		require.True(t, claim.Replayed)
		found, err := direct.GetClaim(t.Context(), claim.ID)
		require.NoError(t, err)
		claim.Replayed = false
		require.Equal(t, claim, found)
	}

	poison(t, proxy, `{"name": "mute", "type": "timeout", "stream": "downstream", "attributes": {"timeout": 0}}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	_, err := bad.Claim(ctx, client.ClaimRequest{CampaignID: id, UserID: "late"})
	require.Less(t, time.Since(start), 10*time.Second)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var unknown *client.OutcomeError
	require.ErrorAs(t, err, &unknown)
	require.NoError(t, proxy.Toxics.RemoveToxic(t.Context(), "mute"))
	_, err = bad.Claim(t.Context(), client.ClaimRequest{CampaignID: id, UserID: "late", Key: unknown.Key})
	require.NoError(t, err)
	require.EqualValues(t, 3, claimed(t, direct, id))
}
