package records_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"dibs/internal/migrations"
	"dibs/internal/testkit/syncertest"
	"dibs/models"
	"dibs/models/stored"
	"dibs/syncer/records"
	"dibs/syncer/writer"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func TestClaims_AClaimReadsAsItsEventTold(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		amount := int64(125)
		for _, c := range []models.Campaign{syncertest.CampaignOf("plain", 100), syncertest.CampaignOf("held", 100)} {
			c.Version, c.Currency = 1, "EUR"
			if c.ID == "held" {
				c.HoldForMs = 90_000
			}
			syncertest.AddCampaigns(t, db, c)
		}
		syncertest.AddPacket(t, db, "plain", "p-1", amount)
		events := append(syncertest.ClaimsOf("plain", 1, 3), syncertest.ClaimsOf("held", 1, 3)...)
		events[1].PacketID, events[1].Amount, events[1].Currency = "p-1", &amount, "EUR"
		events[4].UserID, events[4].At = `O'Brien \ "x"; -- ü😀`, models.TimeFromMs(1)
		events[4].Key, events[4].Epoch = "aB-_", 7
		require.NoError(t, syncertest.SubmitAll(t.Context(), syncertest.StartWriter(t, writer.Config{DB: db}), events))
		claims := records.NewClaims(db)
		for i := range events {
			got, err := claims.Claim(t.Context(), events[i].ID)
			require.NoError(t, err)
			hold := int64(0)
			if events[i].CampaignID == "held" {
				hold = 90_000
			}
			require.Equal(t, events[i].Claim(hold), got)
		}
		var row stored.ClaimRow
		require.NoError(t, db.Where("id = ?", events[4].ID).Take(&row).Error)
		require.Equal(t, []any{"aB-_", int64(7)}, []any{row.KeyDigest, row.Epoch})
		require.WithinDuration(t, time.Now(), row.SyncedAt, time.Minute)
		_, err := claims.Claim(t.Context(), uuid.NewString())
		require.ErrorIs(t, err, models.ErrNotFound)
		_, err = claims.Claim(t.Context(), strings.ToUpper(events[0].ID))
		require.ErrorIs(t, err, models.ErrNotFound)
	})
}

// A claim that could not be written was answered with success,
// so it must be readable, whether or not MySQL has its campaign.
func TestClaims_AClaimThatWasPutAsideIsFound(t *testing.T) {
	t.Parallel()
	for _, lot := range []string{"none-such", "spring#2"} {
		t.Run(lot, func(t *testing.T) {
			syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) { findParked(t, db, lot) })
		})
	}
}

func findParked(t *testing.T, db *gorm.DB, lot string) {
	t.Helper()
	sharded := syncertest.CampaignOf("spring", 100)
	sharded.Shards, sharded.HoldForMs = 2, 60_000
	syncertest.AddCampaigns(t, db, sharded)
	campaign, shard := models.SplitShardID(lot)
	event := syncertest.ClaimsOf(campaign, 1, 1)[0]
	payload := fmt.Sprintf(`{"v":1,"type":"claim.accepted","id":%q,"campaign_id":%q,"shard":%d,"user_id":"u","quantity":2,"seq":1,"at":"2027-03-14T15:09:26.535Z"}`,
		event.ID, campaign, shard)
	for id, text := range map[string]string{event.ID: payload, "broken": "{"} {
		row := stored.ParkedEvent{ID: id, LotID: lot, UserID: "u", Reason: "refused", Payload: []byte(text), ParkedAt: time.Now().UTC()}
		require.NoError(t, db.Create(&row).Error)
	}
	claims := records.NewClaims(db)
	got, err := claims.Claim(t.Context(), event.ID)
	require.NoError(t, err)
	require.EqualValues(t, 2, got.Quantity)
	require.Equal(t, models.ClaimParked, got.Status)
	require.Equal(t, shard > 0, got.ExpiresAt != nil, "the hold of its campaign")
	for _, of := range []string{"", campaign} {
		require.Equal(t, []models.Claim{got}, pages(t, claims, models.ClaimsQuery{UserID: "u", CampaignID: of, Limit: 3}))
	}
	require.Empty(t, pages(t, claims, models.ClaimsQuery{UserID: "u", CampaignID: "other", Limit: 3}))
	require.NoError(t, db.Exec("UPDATE parked_events SET discarded_at = parked_at").Error)
	_, err = claims.Claim(t.Context(), event.ID)
	require.ErrorIs(t, err, models.ErrNotFound, "it was given up")
	require.Empty(t, pages(t, claims, models.ClaimsQuery{UserID: "u", Limit: 3}))
	_, err = claims.Claim(t.Context(), "broken")
	require.ErrorIs(t, err, models.ErrNotFound)
}

func TestClaims_AUsersPagesAreNewestFirstAndComplete(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "a", 1000)
		syncertest.AddCampaign(t, db, "b", 1000)
		events := append(syncertest.ClaimsOf("a", 1, 40), syncertest.ClaimsOf("b", 1, 40)...)
		var want []models.Claim
		for i := range events {
			events[i].UserID = []string{"one", "two"}[i%2]
			// many at the same moment
			events[i].At = models.TimeFromMs(1_800_000_000_000 + int64(i%7))
			if events[i].UserID == "one" {
				want = append(want, events[i].Claim(0))
			}
		}
		slices.SortFunc(want, func(a, b models.Claim) int { return models.PlaceOf(&a).Compare(models.PlaceOf(&b)) })
		require.NoError(t, syncertest.SubmitAll(t.Context(), syncertest.StartWriter(t, writer.Config{DB: db}), events))
		claims := records.NewClaims(db)
		for _, limit := range []int{1, 7, 50} {
			require.Equal(t, want, pages(t, claims, models.ClaimsQuery{UserID: "one", Limit: limit}))
		}
		onlyB := slices.DeleteFunc(slices.Clone(want), func(c models.Claim) bool { return c.CampaignID != "b" })
		require.Len(t, onlyB, 20)
		require.Equal(t, onlyB, pages(t, claims, models.ClaimsQuery{UserID: "one", CampaignID: "b", Limit: 3}))
		require.Empty(t, pages(t, claims, models.ClaimsQuery{UserID: "ONE", Limit: 3}))
	})
}

func pages(t *testing.T, claims *records.Claims, q models.ClaimsQuery) (all []models.Claim) {
	t.Helper()
	for {
		page, err := claims.ClaimsOf(t.Context(), q)
		require.NoError(t, err)
		all = append(all, page...)
		if len(page) < q.Limit {
			return all
		}
		q.After = models.PlaceOf(&page[len(page)-1])
	}
}

func TestClaims_APageComesStraightFromTheIndex(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "a", 1000)
		events := syncertest.ClaimsOf("a", 1, 500)
		for i := range events {
			events[i].UserID = fmt.Sprint("u", i%2)
		}
		require.NoError(t, syncertest.SubmitAll(t.Context(), syncertest.StartWriter(t, writer.Config{DB: db}), events))
		explain := "EXPLAIN "
		if db.Name() == migrations.SQLite {
			explain = "EXPLAIN QUERY PLAN "
		}
		for _, q := range []models.ClaimsQuery{
			{UserID: "u1", Limit: 10}, {UserID: "u1", CampaignID: "a", Limit: 10},
			{UserID: "u1", Limit: 10, After: models.ClaimPlace{ClaimedAt: time.Now(), ID: "x"}},
		} {
			query := db.ToSQL(func(tx *gorm.DB) *gorm.DB { return records.FindClaims(tx, q) })
			var plan []map[string]any
			require.NoError(t, db.Raw(explain+query).Scan(&plan).Error)
			text := fmt.Sprint(plan)
			require.Contains(t, text, "claims_of_user", "%s", query)
			require.NotContains(t, text, "filesort", "%s", query)
			require.NotContains(t, text, "TEMP B-TREE", "%s", query)
		}
	})
}

func TestClaims_ACampaignsPagesAreNewestFirstAndComplete(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "a", 1000)
		syncertest.AddCampaign(t, db, "b", 1000)
		events := append(syncertest.ClaimsOf("a", 1, 40), syncertest.ClaimsOf("b", 1, 5)...)
		require.NoError(t, syncertest.SubmitAll(t.Context(), syncertest.StartWriter(t, writer.Config{DB: db}), events))
		// Redis was restored to an older state
		require.NoError(t, db.Exec("UPDATE claims SET seq = 7 WHERE campaign_id = 'a' AND seq IN (8, 9)").Error)
		require.NoError(t, db.Exec("UPDATE claims SET shard = 2 WHERE campaign_id = 'a' AND seq > 30").Error)
		require.NoError(t, db.Exec("UPDATE claims SET status = 'redeemed' WHERE campaign_id = 'a' AND seq % 2 = 0").Error)
		var want []string
		require.NoError(t, db.Raw("SELECT id FROM claims WHERE campaign_id = 'a' ORDER BY shard DESC, seq DESC, id DESC").Scan(&want).Error)
		claims := records.NewClaims(db)
		read := func(q models.CampaignClaimsQuery) (ids []string) {
			for {
				page, err := claims.ClaimsOfCampaign(t.Context(), q)
				require.NoError(t, err)
				for i := range page {
					ids = append(ids, page[i].ID)
				}
				if len(page) < q.Limit {
					return ids
				}
				q.After = ids[len(ids)-1]
			}
		}
		require.Len(t, want, 40)
		for _, limit := range []int{1, 7, 50} {
			require.Equal(t, want, read(models.CampaignClaimsQuery{CampaignID: "a", Limit: limit}))
		}
		require.Len(t, read(models.CampaignClaimsQuery{CampaignID: "a", Status: models.ClaimRedeemed, Limit: 3}), 19)
		const columns = "id, campaign_id, shard, seq, user_id, quantity, status, key_digest, epoch, claimed_at, synced_at, release_reason, decisions"
		require.NoError(t, db.Exec("INSERT INTO claims_archive ("+columns+", archived_at) SELECT "+columns+", synced_at FROM claims WHERE id = ?", want[9]).Error)
		require.NoError(t, db.Exec("DELETE FROM claims WHERE id = ?", want[9]).Error)
		require.Equal(t, want[10:], read(models.CampaignClaimsQuery{CampaignID: "a", After: want[9], Limit: 7}), "it was archived since")
		_, err := claims.ClaimsOfCampaign(t.Context(), models.CampaignClaimsQuery{CampaignID: "none", Limit: 3})
		require.ErrorIs(t, err, models.ErrNotFound)
		_, err = claims.ClaimsOfCampaign(t.Context(), models.CampaignClaimsQuery{CampaignID: "b", After: want[0], Limit: 3})
		require.ErrorIs(t, err, models.ErrID)
	})
}
