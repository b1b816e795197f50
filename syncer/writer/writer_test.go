package writer_test

import (
	"slices"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/writer"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func TestWriter_WritesWhatTheEventSays(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "c", 10)
		w := syncertest.StartWriter(t, writer.Config{DB: db})
		amount := int64(199)
		e := syncertest.ClaimsOf("c", 1, 1)[0]
		syncertest.AddPacket(t, db, "c", "p.1", amount)
		e.UserID, e.Key, e.Epoch, e.PacketID, e.Amount = `O'Brien \ "x"; -- ü😀 `, "aB-_", 7, "p.1", &amount
		require.NoError(t, syncertest.Submit(t.Context(), w, e))

		var row models.ClaimRow
		require.NoError(t, db.Where("id = ?", e.ID).First(&row).Error)
		require.WithinDuration(t, time.Now(), row.SyncedAt, time.Minute)
		packet := "p.1"
		require.Equal(t, models.ClaimRow{
			ID: e.ID, CampaignID: "c", Seq: 1, UserID: e.UserID, Quantity: e.Quantity, Status: models.ClaimClaimed, KeyDigest: "aB-_",
			Epoch: 7, PacketID: &packet, Amount: &amount, ClaimedAt: e.At.Time, SyncedAt: row.SyncedAt,
		}, row)
	})
}

func TestWriterConfig_NamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := writer.New(writer.Config{Logger: syncertest.Quiet()})
	require.ErrorIs(t, err, sqlstore.ErrConfig)
	require.ErrorContains(t, err, "DB is required")
	db := syncertest.OpenServer(t)
	for field, cfg := range map[string]writer.Config{
		"FlushSize": {FlushSize: -1}, "FlushInterval": {FlushInterval: time.Hour},
	} {
		cfg.DB, cfg.Logger = db, syncertest.Quiet()
		_, err := writer.New(cfg)
		require.ErrorContains(t, err, field)
	}
}

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
		f.send(models.Event{V: 1, Type: models.EventCampaignChanged, ID: uuid.NewString(), CampaignID: "c", Version: version, At: models.NewTime(time.Now())})
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
		require.True(t, slices.Contains([]int64{0, 1, 2, 3, 4, 5}, *age), "age %d", *age)
		require.Equal(t, []line{
			{CampaignID: "busy", Total: 100, Remaining: 94, Claimed: 6, Backlog: new(int64(11)), Drift: new(int64(0)), LastFlushAgeSecs: age},
			{CampaignID: "idle", Total: 5, Remaining: 5},
		}, lines)
	})
}
