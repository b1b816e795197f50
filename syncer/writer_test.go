package syncer_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"

	"dibs/models"
	"dibs/syncer"
)

func TestWriter_WritesEveryClaimAndMovesTheBooks(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, db *gorm.DB) {
		addCampaign(t, db, "rush", 10_000)
		addCampaign(t, db, "Rush", 10) // ids differ by case; lowered below what is claimed
		w := startWriter(t, syncer.WriterConfig{DB: db, FlushSize: 100, FlushInterval: 20 * time.Millisecond, Writers: 2})
		rush, other := claimsOf("rush", 1, 1000), claimsOf("Rush", 1, 300)
		require.NoError(t, submitAll(t.Context(), w, slices.Concat(rush, other)))
		requireBooks(t, db, "rush", rush)
		requireBooks(t, db, "Rush", other)
		require.GreaterOrEqual(t, booksOf(t, db, "rush").Flushes, int64(10), "no flush holds more than FlushSize")
		require.Empty(t, parkedIDs(t, db))
	})
}

func TestWriter_WritesWhatTheEventSays(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, db *gorm.DB) {
		addCampaign(t, db, "c", 10)
		w := startWriter(t, syncer.WriterConfig{DB: db})
		amount := int64(199)
		e := claimsOf("c", 1, 1)[0]
		addPacket(t, db, "c", "p.1", amount)
		e.UserID, e.Key, e.Epoch, e.PacketID, e.Amount = `O'Brien \ "x"; -- ü😀 `, "aB-_", 7, "p.1", &amount
		require.NoError(t, w.Submit(t.Context(), e, nil))

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
	onEachStore(t, func(t *testing.T, db *gorm.DB) {
		w := startWriter(t, syncer.WriterConfig{DB: db})
		for _, kind := range []models.EventType{models.EventCampaignSoldOut, models.EventClaimReleased, "from.the.future"} {
			require.NoError(t, w.Submit(t.Context(), models.Event{V: 1, Type: kind, ID: "x", CampaignID: "c"}, nil))
		}
		require.Empty(t, parkedIDs(t, db))
	})
}

func TestWriter_CountsAClaimOnceHoweverOftenItComes(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, db *gorm.DB) {
		addCampaign(t, db, "c", 10_000)
		w := startWriter(t, syncer.WriterConfig{DB: db, FlushSize: 200, FlushInterval: 10 * time.Millisecond})
		events := claimsOf("c", 1, 500)
		require.NoError(t, submitAll(t.Context(), w, slices.Concat(events[:300], events[:300])), "twice in one batch")
		require.NoError(t, submitAll(t.Context(), w, events), "some that are there, some that are not")
		require.NoError(t, submitAll(t.Context(), w, events), "all there")
		requireBooks(t, db, "c", events)
		require.Empty(t, parkedIDs(t, db))
	})
}

func TestWriter_TwoConsumersOfTheSameEventsCountThemOnce(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, db *gorm.DB) {
		addCampaign(t, db, "a", 10_000)
		addCampaign(t, db, "b", 10_000)
		a, b := claimsOf("a", 1, 1500), claimsOf("b", 1, 1500)
		var g errgroup.Group
		for i := range 4 {
			w := startWriter(t, syncer.WriterConfig{DB: db, FlushSize: 150 + 50*i, FlushInterval: 5 * time.Millisecond, Writers: 1 + i%2})
			mine := slices.Concat(a[300*i:300*i+600], b[300*i:300*i+600])
			g.Go(func() error { return submitAll(t.Context(), w, mine) })
		}
		require.NoError(t, g.Wait())
		requireBooks(t, db, "a", a)
		requireBooks(t, db, "b", b)
		require.Empty(t, parkedIDs(t, db))
	})
}

func TestWriter_AnswersTheCallerThatGivesUpAndStillWritesItsClaim(t *testing.T) {
	t.Parallel()
	db := openServer(t)
	addCampaign(t, db, "c", 10)
	w := startWriter(t, syncer.WriterConfig{DB: db, FlushInterval: 200 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	events := claimsOf("c", 1, 1)
	require.ErrorIs(t, w.Submit(ctx, events[0], nil), context.Canceled)
	require.NoError(t, submitAll(t.Context(), w, events), "delivered again")
	requireBooks(t, db, "c", events)
}

func TestWriter_CloseSaysWhatItFlushedAndWhatWasBefore(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	db := openStore(t, syncer.StoreConfig{Path: filepath.Join(t.TempDir(), "dibs.db")})
	addCampaign(t, db, "c", 100)
	w, err := syncer.NewWriter(syncer.WriterConfig{DB: db, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	require.NoError(t, err)
	require.NoError(t, submitAll(t.Context(), w, claimsOf("c", 1, 5)))
	require.NoError(t, w.Close(t.Context()))
	require.Contains(t, said.String(), "events_flushed_at_close=0 units_flushed_at_close=0 events_not_flushed=0 events_flushed_ever=5")
}

func TestWriterConfig_NamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := syncer.NewWriter(syncer.WriterConfig{Logger: quiet()})
	require.ErrorIs(t, err, syncer.ErrConfig)
	require.ErrorContains(t, err, "DB is required")
	db := openServer(t)
	for field, cfg := range map[string]syncer.WriterConfig{
		"FlushSize": {FlushSize: -1}, "FlushInterval": {FlushInterval: time.Hour}, "Writers": {Writers: 99},
		"PendingMax": {PendingMax: 10}, "FlushTimeout": {FlushTimeout: -1},
	} {
		cfg.DB, cfg.Logger = db, quiet()
		_, err := syncer.NewWriter(cfg)
		require.ErrorContains(t, err, field)
	}
}
