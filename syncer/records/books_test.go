package records_test

import (
	"fmt"
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/models"
	"dibs/models/stored"
	"dibs/syncer/campaigns"
	"dibs/syncer/records"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func TestActiveCampaignsAndTheirBooks(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		repo, books := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t)), records.NewBooks(db)
		for _, id := range []string{"new", "busy", "evicted", "other", "closed"} {
			_, _, err := repo.Create(t.Context(), syncertest.CampaignOf(id, 100))
			require.NoError(t, err)
		}
		for id, set := range map[string]map[string]any{
			"busy":    {"residency": models.ResidencyResident, "claimed": 7, "synced_seq": 6},
			"evicted": {"residency": models.ResidencyEvicted},
		} {
			require.NoError(t, db.Table("lots").Where("id = ?", id).UpdateColumns(set).Error)
		}
		require.NoError(t, db.Exec("UPDATE definitions SET status = 'closed' WHERE campaign_id = 'closed'").Error)
		require.NoError(t, db.Exec("UPDATE lots SET updated_at = '2099-01-01 00:00:00.000' WHERE id = 'busy'").Error)
		active, err := books.Active(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, "busy", active[0], "moved last")
		require.ElementsMatch(t, []string{"busy", "new", "other"}, active)

		all, err := books.BooksOfAll(t.Context(), []string{"busy", "new", "nowhere"})
		require.NoError(t, err)
		require.Len(t, all, 2)
		busy, err := repo.Books(t.Context(), "busy")
		require.NoError(t, err)
		busy.At = all["busy"].Books.At
		require.Equal(t, busy, all["busy"].Books)
		require.Equal(t, int64(7), busy.Claimed)
		require.Equal(t, "busy", all["busy"].Campaign.ID)
		now := time.Now().UTC()
		for i, f := range []stored.StockFlush{
			{CampaignID: "busy", TookMs: 900, FlushedAt: now.Add(-time.Minute)}, {CampaignID: "busy", TookMs: 7, FlushedAt: now},
			{CampaignID: "busy", TookMs: 3, FlushedAt: now}, {CampaignID: "new", TookMs: 0, FlushedAt: now},
		} {
			f.ID = fmt.Sprint("f", i)
			require.NoError(t, db.Create(&f).Error)
		}
		all, err = books.BooksOfAll(t.Context(), []string{"busy", "new", "other"})
		require.NoError(t, err)
		require.Equal(t, []int64{7, 1, 0}, []int64{all["busy"].FlushMs, all["new"].FlushMs, all["other"].FlushMs},
			"the slowest of the last seconds, and there was one, and none")
	})
}

func TestBooksOfACampaignOfSeveralShards(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		repo, books := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t)), records.NewBooks(db)
		for id, shards := range map[string]int{"c": 3, "d": 2, "e": 1} {
			c := syncertest.CampaignOf(id, 100)
			c.Shards = shards
			_, _, err := repo.Create(t.Context(), c)
			require.NoError(t, err)
		}
		require.NoError(t, db.Exec("UPDATE lots SET claimed = 4, synced_seq = 4 WHERE id = 'c#2'").Error)
		payload := `{"v":1,"type":"claim.accepted","id":"01a1fc6d-e406-7215-ad5f-bdaab8462f2c","campaign_id":"c","shard":2,"user_id":"ada",` +
			`"quantity":3,"seq":1,"at":"2026-11-21T04:47:02.663Z"}`
		require.NoError(t, db.Exec("INSERT INTO parked_events (id, campaign_id, reason, payload, parked_at) VALUES (?, 'c#2', 'r', ?, ?)",
			"01a1fc6d-e406-7215-ad5f-bdaab8462f2c", []byte(payload), "2026-11-21 04:47:03.000").Error)
		all, err := books.BooksOfAll(t.Context(), []string{"c", "d", "e"})
		require.NoError(t, err)
		require.Equal(t, []int{3, 2, 0}, []int{len(all["c"].Shards), len(all["d"].Shards), len(all["e"].Shards)})
		second := all["c"].Shards[1]
		require.Equal(t, "c#2", second.Campaign.ID)
		require.Equal(t, []int64{4, 4, 1, 3}, []int64{
			second.Books.Claimed, second.Books.SyncedSeq, second.Books.ParkedClaims, second.Books.ParkedUnits,
		})
		require.EqualValues(t, 3, all["c"].Books.ParkedUnits)

		// what a shard lost is free neither in the shard nor in its campaign
		require.NoError(t, db.Exec("UPDATE lots SET sold = 3, claimed = 3, synced_seq = 3, lost_claims = 1, lost_units = 2, given_up_claims = 1,"+
			" given_up_units = 4 WHERE id = 'd#1'").Error)
		require.NoError(t, campaigns.SumShards(t.Context(), db, "d"))
		b, err := repo.Books(t.Context(), "d")
		require.NoError(t, err)
		require.Equal(t, []int64{3, 1, 2, 4, 95}, []int64{b.Sold, b.LostClaims, b.LostUnits, b.GivenUpUnits, b.Remaining})
		of, err := repo.ShardsOf(t.Context(), "d")
		require.NoError(t, err)
		require.Equal(t, []int64{9, 45}, []int64{of.Sold, of.Shards[0].Free})

		require.NoError(t, db.Exec("UPDATE lots SET residency = ? WHERE campaign_id = 'c'", models.ResidencyEvicted).Error)
		require.NoError(t, db.Exec("UPDATE lots SET residency = ? WHERE id = 'd#1'", models.ResidencyEvicted).Error)
		active, err := books.Active(t.Context(), 10)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"d", "e"}, active, "a campaign is evicted when all its shards are")
	})
}
