package reconcile_test

import (
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/reconcile"
	"dibs/syncer/residency"
	"dibs/syncer/retention"

	"context"

	"github.com/stretchr/testify/require"
)

func totalsOf(h *syncertest.Stack, day time.Time, zone *time.Location) *reconcile.Totals {
	h.T.Helper()
	t, err := h.Reconciler().Totals(h.T.Context(), day, zone)
	require.NoError(h.T, err)
	return t
}

// The figures of a day are those of the claims that MySQL has; what is missing is said, until nothing is.
func TestTotals_OfADay(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	coupons := h.Create(100, func(c *models.Campaign) { c.Currency = "EUR" })
	packets := h.OpenPackets(syncertest.ListOf("p", 5))
	h.Take(coupons, syncertest.Asks("u", 7)...)
	h.Claim(packets, syncertest.Asks("v", 3)...)
	today, yesterday := time.Now().UTC(), time.Now().UTC().AddDate(0, 0, -1)

	found := totalsOf(h, today, time.UTC)
	require.False(t, found.Complete)
	require.Len(t, found.Why, 2)
	require.Equal(t, "the day is not over", found.Why[0])
	require.Contains(t, found.Why[1], "partition 0: events from")
	require.Len(t, found.Campaigns, 1, "three claims of packets are on their way")
	h.Sync()

	// As if it had been yesterday.
	h.Exec("UPDATE claims SET claimed_at = claimed_at - INTERVAL 1 DAY")
	h.Take(coupons, syncertest.Asks("w", 2)...)
	require.NoError(t, h.Redis.XTrimMaxLen(t.Context(), lua.StreamKey(0), 0).Err())
	found = totalsOf(h, yesterday, time.UTC)
	require.Empty(t, found.Why)
	require.True(t, found.Complete)
	amount := found.Sums[0].Amount
	require.Equal(t, []reconcile.CurrencyTotals{{Currency: "CNY", Claims: 3, Units: 3, Amount: amount}, {Currency: "EUR", Claims: 7, Units: 7}}, found.Sums)
	require.Positive(t, amount)
	byID := map[string]reconcile.CampaignTotals{}
	for _, c := range found.Campaigns {
		byID[c.CampaignID] = c
	}
	require.Equal(t, []reconcile.ShardTotals{{Claims: 7, FirstSeq: 1, LastSeq: 7}}, byID[coupons].Shards)
	require.Equal(t, []reconcile.ShardTotals{{Claims: 3, FirstSeq: 1, LastSeq: 3}}, byID[packets].Shards)
	require.Equal(t, []reconcile.ShardTotals{{Claims: 2, FirstSeq: 8, LastSeq: 9}}, totalsOf(h, today, time.UTC).Campaigns[0].Shards)

	// Days of another zone are other spans of time, and together hold the same.
	zone, err := time.LoadLocation("Pacific/Kiritimati")
	require.NoError(t, err)
	claims := int64(0)
	for d := -2; d <= 2; d++ {
		for _, sum := range totalsOf(h, today.AddDate(0, 0, d), zone).Sums {
			claims += sum.Claims
		}
	}
	require.EqualValues(t, 12, claims)

	h.Exec("INSERT INTO parked_events (id, campaign_id, reason, payload, parked_at) VALUES ('x', 'x', 'x', '{}', NOW())")
	require.Equal(t, []string{"1 events are parked: see dibs reconcile"}, totalsOf(h, yesterday, time.UTC).Why)
}

// Archived claims are in the figures, unless they went to a file, which is said.
func TestTotals_OfArchivedClaims(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, nil)
	h.Take(id, syncertest.Asks("u", 4)...)
	h.Shut(id)
	h.Exec("UPDATE lots SET closed_told_at = updated_at")
	evictor := residency.NewMaintainer(h.Hydrator(), residency.MinIdle, nil, nil)
	_, err := retention.NewArchiver(h.DB, func(ctx context.Context, id string) error {
		_, err := evictor.EvictOne(ctx, id)
		return err
	}, retention.ArchiveTable{}, func(int) {}).Archive(t.Context(), id, time.Now().Add(time.Minute))
	require.NoError(t, err)
	require.EqualValues(t, 4, totalsOf(h, time.Now().UTC(), time.UTC).Sums[0].Claims)
	h.Exec("DELETE FROM claims_archive")
	require.Contains(t, totalsOf(h, time.Now().UTC(), time.UTC).Why, "4 claims of campaigns of that day were archived to files")
}
