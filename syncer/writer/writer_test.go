package writer_test

import (
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/writer"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// A change that is committed while a flush applies an earlier one stays
// marked as unpublished. Else its packets would never be sent.
func TestWriter_AChangeThatIsCommittedMeanwhileIsNotTold(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	syncertest.AddCampaign(t, db, "c", 10)
	changes := 0
	w := startTuned(t, writer.Config{DB: db}, writer.Tuning{Step: func(name string) {
		if name == "claims.dropped" && changes == 0 {
			changes++
			require.NoError(t, db.Exec("UPDATE definitions SET version = version + 1 WHERE campaign_id = 'c'").Error)
			require.NoError(t, db.Exec("UPDATE lots SET untold = 1, redis_total = 12 WHERE id = 'c'").Error)
		}
	}})
	f := newFeed(t, db, w, 0)
	told := func(version int64) (untold, redisTotal int64) {
		t.Helper()
		f.send(event.Event{V: 1, Type: event.CampaignChanged, ID: uuid.NewString(), CampaignID: "c", Version: version, At: models.NewTime(time.Now())})
		require.NoError(t, db.Raw("SELECT COALESCE(untold, 0), redis_total FROM lots WHERE id = 'c'").Row().Scan(&untold, &redisTotal))
		return untold, redisTotal
	}
	untold, redisTotal := told(1)
	require.Equal(t, []int64{1, 12}, []int64{untold, redisTotal})
	untold, redisTotal = told(2)
	require.Equal(t, []int64{0, 0}, []int64{untold, redisTotal})
}

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
		require.InDelta(t, 3, *age, 3)
		require.Equal(t, []line{
			{CampaignID: "busy", Total: 100, Remaining: 94, Claimed: 6, Backlog: new(int64(11)), Drift: new(int64(0)), LastFlushAgeSecs: age},
			{CampaignID: "idle", Total: 5, Remaining: 5},
		}, lines)
	})
}
