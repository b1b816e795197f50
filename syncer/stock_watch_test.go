package syncer_test

import (
	"dibs/syncer"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func TestStockWatch_IsALineACampaign(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, db *gorm.DB) {
		addCampaign(t, db, "busy", 100)
		addCampaign(t, db, "idle", 5)
		w := startWriter(t, syncer.WriterConfig{DB: db})
		require.NoError(t, submitAll(t.Context(), w, claimsOf("busy", 1, 3))) // 6 units
		now := time.Now().UTC()
		for i, drift := range []int{7, 0} {
			require.NoError(t, db.Exec("INSERT INTO reconciliations VALUES (?, 'busy', 94, 94, ?, ?, ?)",
				uuid.Must(uuid.NewV7()).String(), 10+i, drift, now.Add(time.Duration(i-2)*time.Minute)).Error)
		}
		type line struct {
			CampaignID                       string
			Total, Remaining, Claimed        int64
			Backlog, Drift, LastFlushAgeSecs *int64
		}
		var lines []line
		require.NoError(t, db.Raw("SELECT campaign_id, total, remaining, claimed, backlog, drift, last_flush_age_seconds AS last_flush_age_secs"+
			" FROM stock_watch ORDER BY campaign_id").Scan(&lines).Error)
		require.Len(t, lines, 2)
		age := lines[0].LastFlushAgeSecs
		require.NotNil(t, age)
		require.True(t, slices.Contains([]int64{0, 1, 2, 3, 4, 5}, *age), "age %d", *age)
		require.Equal(t, []line{
			{CampaignID: "busy", Total: 100, Remaining: 94, Claimed: 6, Backlog: new(int64(11)), Drift: new(int64(0)), LastFlushAgeSecs: age},
			{CampaignID: "idle", Total: 5, Remaining: 5},
		}, lines)
	})
}
