package sums_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/testkit/syncertest"
	"dibs/models"
	"dibs/syncer/adder"
	"dibs/syncer/sums"
)

// More lots than one statement updates: each loses its own claims, and a
// campaign those of all its shards.
func TestRelease_LotsAndTheirCampaigns(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		released := make(adder.Sums)
		want := make(map[string]string) // what is claimed, and how many claims were released, by lot
		var all []models.Campaign
		for n := range int64(120) {
			c := syncertest.CampaignOf(fmt.Sprintf("c%03d", n), 900)
			units := 1 + n
			claims := 1 + n%4
			shards := []int{0}
			if n%2 == 0 {
				c.Shards = 3
				shards = []int{1, 3}
				want[models.ShardID(c.ID, 2)] = "500 0"
			}
			for _, shard := range shards {
				lot := adder.Lot{CampaignID: c.ID, Shard: shard}
				released.Of(lot).Merge(&adder.Tally{Units: units, Claims: claims})
				want[lot.ID()] = fmt.Sprint(500-units, " ", claims)
			}
			times := int64(len(shards))
			want[c.ID] = fmt.Sprint(500-times*units, " ", times*claims)
			all = append(all, c)
		}
		untouched := syncertest.CampaignOf("C001", 900) // differs from another by case
		want[untouched.ID] = "500 0"
		syncertest.AddCampaigns(t, db, append(all, untouched)...)
		require.NoError(t, db.Exec("UPDATE lots SET claimed = 500").Error)
		require.NoError(t, db.Transaction(func(tx *gorm.DB) error { return sums.Release(t.Context(), tx, released, time.Now()) }))
		var rows []struct {
			ID                      string
			Claimed, ReleasedClaims int64
		}
		require.NoError(t, db.Table("lots").Find(&rows).Error)
		got := make(map[string]string)
		for _, r := range rows {
			got[r.ID] = fmt.Sprint(r.Claimed, " ", r.ReleasedClaims)
		}
		require.Equal(t, want, got)
	})
}
