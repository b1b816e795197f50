package writer_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/writer"
)

// A repeated claim of a shard, among new ones or twice at once, is
// known: it is neither parked nor counted.
func TestWriter_CountsAClaimOfAShardOnceHoweverOftenItComes(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		c := syncertest.CampaignOf("c", 10_000)
		c.Shards = 2
		_, _, err := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t)).Create(t.Context(), c)
		require.NoError(t, err)
		var events []models.Event
		for shard := 1; shard <= c.Shards; shard++ {
			for _, e := range syncertest.ClaimsOf("c", 1, 100) {
				e.Shard = shard
				events = append(events, e)
			}
		}
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushSize: 200, FlushInterval: 10 * time.Millisecond})
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, slices.Concat(events[50:150], events[50:150])), "twice in one batch")
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, events), "some that are there, some that are not")
		require.Empty(t, syncertest.ParkedIDs(t, db))
		syncertest.RequireBooks(t, db, "c", events)
		for shard := 1; shard <= c.Shards; shard++ {
			var synced, flushed int64
			id := models.ShardID("c", shard)
			require.NoError(t, db.Raw("SELECT s.synced_seq, (SELECT SUM(f.claims) FROM stock_flushes f WHERE f.campaign_id = 'c' AND f.shard = s.shard)"+
				" FROM campaign_shards s WHERE s.id = ?", id).Row().Scan(&synced, &flushed))
			require.Equal(t, []int64{100, 100}, []int64{synced, flushed}, id)
		}
	})
}
