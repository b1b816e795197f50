package models_test

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/models"
	"dibs/models/stored"
)

func rows() []stored.ClaimRow {
	resolved := at.Add(time.Minute)
	claimed := stored.ClaimRow{
		ID: "01a1fc6d-e406-7215-ad5f-bdaab8462f2c", CampaignID: "spring", Seq: 17, UserID: "ada", Quantity: 2, Status: models.ClaimClaimed,
		KeyDigest: "secret of the store", Epoch: 3, ClaimedAt: at.Time, SyncedAt: resolved,
	}
	redeemed := claimed
	redeemed.Status, redeemed.OrderID, redeemed.ResolvedAt = models.ClaimRedeemed, new("4711"), &resolved
	released := claimed
	released.Status, released.ReleaseReason, released.ResolvedAt = models.ClaimReleased, "payment failed", &resolved
	expired := released
	expired.Status, expired.ReleaseReason = models.ClaimExpired, models.ReasonExpired
	packet := claimed
	packet.CampaignID, packet.Quantity, packet.PacketID, packet.Amount = "gala", 1, new("_00000017"), new(int64(0))
	return []stored.ClaimRow{claimed, redeemed, released, expired, packet}
}

// Storefronts read this JSON: names and forms of the fields must not change.
func TestClaimsAreAnsweredAsStorefrontsReadThem(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	write := func(v any) {
		line, err := json.MarshalIndent(v, "", "  ")
		require.NoError(t, err)
		out.Write(append(line, '\n'))
	}
	for _, r := range rows() {
		hold := int64(0)
		if r.PacketID == nil {
			hold = (15 * time.Minute).Milliseconds()
		}
		write(r.Claim("CNY", hold))
	}
	write(models.Stock{
		CampaignID: "spring", Total: 10, Remaining: 4, Claimed: 6, Synced: 3, Backlog: 2, Parked: 1, Drift: -1, Low: true, AsOf: at,
	})
	write(models.Stock{CampaignID: "new", AsOf: at}) // zeros are written
	requireGolden(t, "answers.json", out.String())
}

func TestAClaimIsTheSameFromItsEventAndFromItsRow(t *testing.T) {
	t.Parallel()
	for i, row := range []stored.ClaimRow{rows()[0], rows()[4]} {
		e := events()[i]
		if i == 1 {
			row.Amount = new(int64(8888))
		}
		for _, hold := range []int64{0, 1, 900_000} {
			require.Equal(t, row.Claim("CNY", hold), e.Claim(hold), "%s held for %d ms", row.CampaignID, hold)
		}
	}
	require.Nil(t, events()[0].Claim(0).ExpiresAt, "for ever")
	require.Equal(t, "2026-11-21T05:02:02.663Z", events()[0].Claim(900_000).ExpiresAt.Format(models.TimeLayout))
}

func TestClaimsOfAUserAreNewestFirst(t *testing.T) {
	t.Parallel()
	position := func(ms int64, id string) models.ClaimPlace {
		return models.PlaceOf(&models.Claim{ClaimedAt: models.TimeFromMs(ms), ID: id})
	}
	sorted := []models.ClaimPlace{position(9, "b"), position(9, "a"), position(8, "z"), position(8, ""), position(0, "zz")}
	for i := range sorted {
		for k := range sorted {
			require.Equal(t, cmp.Compare(i, k), sorted[i].Compare(sorted[k]), "%v and %v", sorted[i], sorted[k])
		}
	}
}

func TestAnyTimeOfRFC3339IsReadAndWrittenInUTC(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"2026-11-21T04:47:02Z":                "2026-11-21T04:47:02.000Z",
		"2026-11-21T04:47:02.6639Z":           "2026-11-21T04:47:02.663Z",
		"2026-11-21T23:47:02.1-05:30":         "2026-11-22T05:17:02.100Z",
		"1969-12-31T23:59:59.9999Z":           "1969-12-31T23:59:59.999Z",
		"2024-02-29T00:00:00+14:00":           "2024-02-28T10:00:00.000Z",
		"9999-12-31T23:59:59.999999999+00:00": "9999-12-31T23:59:59.999Z",
	} {
		var got models.Time
		require.NoError(t, json.Unmarshal([]byte(`"`+in+`"`), &got), in)
		out, err := json.Marshal(got)
		require.NoError(t, err)
		require.Equal(t, `"`+want+`"`, string(out), in)
		require.Equal(t, time.UTC, got.Location(), in)
	}
	for _, bad := range []string{`""`, `"2026-11-21"`, `"2026-02-30T00:00:00Z"`, `1795236422`} {
		var got models.Time
		require.Error(t, json.Unmarshal([]byte(bad), &got), bad)
	}
}
