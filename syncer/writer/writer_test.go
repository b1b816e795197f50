package writer_test

import (
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/writer"

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
