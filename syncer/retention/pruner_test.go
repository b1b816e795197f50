package retention_test

import (
	"fmt"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/compare"
	"dibs/syncer/retention"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func idAt(at time.Time) string {
	id := uuid.Must(uuid.NewV7())
	for i := range 6 {
		id[i] = byte(at.UnixMilli() >> (40 - 8*i))
	}
	return id.String()
}

func flush(campaignID string, at time.Time) models.StockFlush {
	return models.StockFlush{ID: idAt(at), CampaignID: campaignID, Units: 1, Claims: 1, FirstSeq: 1, LastSeq: 1, FlushedAt: at.UTC()}
}

func flushedAt(t testing.TB, db *gorm.DB, campaignID string, at time.Time) string {
	t.Helper()
	f := flush(campaignID, at)
	require.NoError(t, db.Create(&f).Error)
	return f.ID
}

func idsIn(t testing.TB, db *gorm.DB, table string) (ids []string) {
	t.Helper()
	require.NoError(t, db.Raw("SELECT id FROM "+table+" ORDER BY id").Scan(&ids).Error)
	return ids
}

func TestPruner_KeepsWhatIsYoungAndTheNewestOfEachCampaign(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		pruner := retention.KeepFlushes(retention.NewPruner(db), time.Hour)
		started := time.Now()
		old := make([]models.StockFlush, 1_500) // more than a page
		for i := range old {
			old[i] = flush("busy", started.Add(-3*time.Hour+time.Duration(i)*time.Millisecond))
		}
		require.NoError(t, db.CreateInBatches(old, 500).Error)
		waits := flushedAt(t, db, "busy", started.Add(-39*time.Hour)) // the counters lack it
		require.NoError(t, db.Exec("UPDATE stock_flushes SET waiting = 1 WHERE id = ?", waits).Error)
		kept := []string{
			waits,
			flushedAt(t, db, "idle", started.Add(-30*time.Hour)), // its only one
			flushedAt(t, db, "busy", started.Add(-59*time.Minute)),
			flushedAt(t, db, "busy", started),
		}
		pruned, err := pruner.Prune(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1_500, pruned)
		require.Equal(t, kept, idsIn(t, db, "stock_flushes"))
		pruned, err = pruner.Prune(t.Context())
		require.NoError(t, err)
		require.Zero(t, pruned)
	})
}

func TestPruner_KeepsMovesOfCampaignsThatDidNotEndLongAgo(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		repo := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t))
		var moves []map[string]any
		for id, ended := range map[string]*time.Time{"old": new(time.Now().Add(-8 * 24 * time.Hour)), "young": new(time.Now()), "open": nil} {
			c := syncertest.CampaignOf(id, 100)
			c.Shards = 2
			_, _, err := repo.Create(t.Context(), c)
			require.NoError(t, err)
			require.NoError(t, db.Exec("UPDATE definitions SET closed_told_at = ? WHERE campaign_id = ?", ended, id).Error)
			n := 1
			if id == "old" {
				n = 1_500
			}
			for i := range n {
				moves = append(moves, map[string]any{
					"id": fmt.Sprint(id, i), "campaign_id": id, "from_shard": 1, "to_shard": 2, "units": 1,
					"debited_at": time.Now().UTC(),
				})
			}
		}
		require.NoError(t, db.Table("stock_moves").CreateInBatches(moves, 500).Error)
		pruner := retention.SpendOnATable(retention.NewPruner(db), 0)
		for _, want := range []int{1000, 500, 0} {
			pruned, err := pruner.Prune(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, pruned)
		}
		var left []string
		require.NoError(t, db.Raw("SELECT DISTINCT campaign_id FROM stock_moves ORDER BY campaign_id").Scan(&left).Error)
		require.Equal(t, []string{"open", "young"}, left)
	})
}

func TestPruner_KeepsTheNewestRepairs(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		pruner := retention.KeepRepairs(retention.NewPruner(db), 3)
		var kept []string
		for i := range 8 {
			at := time.Now().Add(time.Duration(i) * time.Second)
			r := models.Repair{ID: idAt(at), LotID: fmt.Sprint("c", i%2), What: compare.RepairLost, At: at.UTC()}
			require.NoError(t, db.Create(&r).Error)
			if i > 1 {
				kept = append(kept, r.ID)
			}
		}
		pruned, err := pruner.Prune(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, pruned)
		require.Equal(t, kept, idsIn(t, db, "repairs"))
	})
}
