package retention_test

import (
	"fmt"
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/models/stored"
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

func flush(campaignID string, at time.Time) stored.StockFlush {
	return stored.StockFlush{ID: idAt(at), CampaignID: campaignID, Units: 1, Claims: 1, FirstSeq: 1, LastSeq: 1, FlushedAt: at.UTC()}
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
		old := make([]stored.StockFlush, 1_500) // more than a page
		for i := range old {
			old[i] = flush("busy", started.Add(-3*time.Hour+time.Duration(i)*time.Millisecond))
		}
		require.NoError(t, db.CreateInBatches(old, 500).Error)
		kept := []stored.StockFlush{
			flush("busy", started.Add(-39*time.Hour)), // the counters lack it
			flush("idle", started.Add(-30*time.Hour)), // its only one
			flush("busy", started.Add(-59*time.Minute)),
			flush("busy", started),
		}
		require.NoError(t, db.Create(kept).Error)
		require.NoError(t, db.Exec("UPDATE stock_flushes SET waiting = 1 WHERE id = ?", kept[0].ID).Error)
		pruned, err := pruner.Prune(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1_500, pruned)
		require.Equal(t, []string{kept[0].ID, kept[1].ID, kept[2].ID, kept[3].ID}, idsIn(t, db, "stock_flushes"))

		var repairs []string
		for i := range 8 {
			at := started.Add(time.Duration(i) * time.Second)
			r := stored.Repair{ID: idAt(at), LotID: fmt.Sprint("c", i%2), What: compare.RepairLost, At: at.UTC()}
			require.NoError(t, db.Create(&r).Error)
			repairs = append(repairs, r.ID)
		}
		pruned, err = retention.KeepRepairs(retention.NewPruner(db), 3).Prune(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, pruned)
		require.Equal(t, repairs[2:], idsIn(t, db, "repairs"), "the newest of each campaign")
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
			for i := range map[string]int{"old": 1_500, "young": 1, "open": 1}[id] {
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
