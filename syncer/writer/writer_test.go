package writer_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func TestWriter_WritesEveryClaimAndMovesTheBooks(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "rush", 10_000)
		syncertest.AddCampaign(t, db, "Rush", 10) // ids differ by case; lowered below what is claimed
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushSize: 100, FlushInterval: 20 * time.Millisecond})
		rush, other := syncertest.ClaimsOf("rush", 1, 1000), syncertest.ClaimsOf("Rush", 1, 300)
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, slices.Concat(rush, other)))
		syncertest.RequireBooks(t, db, "rush", rush)
		syncertest.RequireBooks(t, db, "Rush", other)
		require.Empty(t, syncertest.ParkedIDs(t, db))
	})
}

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

func TestWriter_PassesOverOtherTypesOfEvent(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		w := syncertest.StartWriter(t, writer.Config{DB: db})
		for _, kind := range []models.EventType{models.EventCampaignSoldOut, models.EventClaimReleased, "from.the.future"} {
			require.NoError(t, syncertest.Submit(t.Context(), w, models.Event{V: 1, Type: kind, ID: "x", CampaignID: "c"}))
		}
		require.Empty(t, syncertest.ParkedIDs(t, db))
	})
}

func TestWriter_CountsAClaimOnceHoweverOftenItComes(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "c", 10_000)
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushSize: 200, FlushInterval: 10 * time.Millisecond})
		events := syncertest.ClaimsOf("c", 1, 500)
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, slices.Concat(events[:300], events[:300])), "twice in one batch")
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, events), "some that are there, some that are not")
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, events), "all there")
		syncertest.RequireBooks(t, db, "c", events)
		require.Empty(t, syncertest.ParkedIDs(t, db))
	})
}

func TestWriter_CloseSaysWhatItFlushedAndWhatWasBefore(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	db := syncertest.OpenStore(t, sqlstore.Config{Path: filepath.Join(t.TempDir(), "dibs.db")})
	syncertest.AddCampaign(t, db, "c", 100)
	w, err := writer.New(writer.Config{DB: db, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	require.NoError(t, err)
	require.NoError(t, syncertest.SubmitAll(t.Context(), w, syncertest.ClaimsOf("c", 1, 5)))
	require.NoError(t, w.Close(t.Context()))
	require.Contains(t, said.String(), "events_flushed_at_close=0 units_flushed_at_close=0 events_not_flushed=0 events_flushed_ever=5")
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
