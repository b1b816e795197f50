package writer_test

import (
	"slices"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/syncer/writer"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func TestStockWatch_IsALineACampaign(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "busy", 100)
		syncertest.AddCampaign(t, db, "idle", 5)
		w := syncertest.StartWriter(t, writer.Config{DB: db})
		// 6 units
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, syncertest.ClaimsOf("busy", 1, 3)))
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
