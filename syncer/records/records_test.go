package records_test

import (
	"fmt"
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/models"
	"dibs/models/stored"
	"dibs/syncer/records"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

var noon = time.Date(2026, 3, 5, 12, 0, 0, 123e6, time.UTC)

func put(t *testing.T, db *gorm.DB, rows ...any) {
	t.Helper()
	for _, row := range rows {
		require.NoError(t, db.Create(row).Error)
	}
}

func TestRecordsOfACampaignAreTheNewestFirst(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		sharded := syncertest.CampaignOf("spring", 100)
		sharded.Shards = 2
		syncertest.AddCampaigns(t, db, sharded, syncertest.CampaignOf("other", 100))
		for i, id := range []string{"a", "b", "c"} {
			at := noon.Add(time.Duration(i) * time.Second)
			put(t, db, &stored.StockFlush{ID: id, CampaignID: "spring", Units: int64(i), Claims: 1, FirstSeq: 1, LastSeq: 1, FlushedAt: at},
				&stored.Reconciliation{ID: id, CampaignID: "spring", MySQLRemaining: int64(i), At: at},
				&stored.Repair{ID: id, LotID: models.ShardID("spring", i), What: "claims", At: at},
				&stored.ParkedEvent{ID: id, LotID: models.ShardID("spring", i), Reason: "r", Payload: []byte("{}"), ParkedAt: at})
		}
		put(t, db, &stored.StockFlush{ID: "x", CampaignID: "other", FlushedAt: noon}, &stored.Repair{ID: "x", LotID: "other", What: "redis", At: noon},
			&stored.ParkedEvent{ID: "x", LotID: "other", Reason: "r", Payload: []byte("{}"), ParkedAt: noon})
		require.NoError(t, db.Exec("UPDATE parked_events SET discarded_at = ? WHERE id = 'b'", "2026-03-05 12:00:00.000").Error)
		r := records.New(db)
		flushes, err := r.Flushes(t.Context(), "spring", 2)
		require.NoError(t, err)
		require.Len(t, flushes, 2)
		require.Equal(t, []string{"c", "b"}, []string{flushes[0].ID, flushes[1].ID})
		comparisons, err := r.Comparisons(t.Context(), "spring", 9)
		require.NoError(t, err)
		require.Len(t, comparisons, 3)
		require.Equal(t, "c", comparisons[0].ID)
		for id, want := range map[string]struct{ repairs, parked int }{"": {4, 3}, "spring": {3, 2}, "s_ring": {0, 0}} { // one was given up
			repairs, err := r.Repairs(t.Context(), id, 9)
			require.NoError(t, err)
			require.Len(t, repairs, want.repairs, id)
			parked, err := r.Parked(t.Context(), id, 9)
			require.NoError(t, err)
			require.Len(t, parked, want.parked, id)
		}

		later := noon.Add(time.Hour)
		put(t, db, &stored.PacketRow{CampaignID: "p", ID: "1", Position: 1, Amount: 5, UserID: new("ada"), ClaimID: new("k"), CreatedAt: noon},
			&stored.PacketRow{CampaignID: "p", ID: "2", Position: 2, Amount: 7, CreatedAt: noon},
			&stored.PacketRow{CampaignID: "p", ID: "3", Position: 3, Amount: 9, ReleaseAt: &later, ReturnedAt: &later, CreatedAt: noon})
		waves, err := r.Waves(t.Context(), "p", 9)
		require.NoError(t, err)
		require.Len(t, waves, 2)
		require.Nil(t, waves[0].ReleaseAt)
		require.Equal(t, []int64{2, 1, 0, 12}, []int64{waves[0].Packets, waves[0].Taken, waves[0].Returned, waves[0].Amount})
		require.WithinDuration(t, later, *waves[1].ReleaseAt, 0)
		require.Equal(t, []int64{1, 0, 1, 9}, []int64{waves[1].Packets, waves[1].Taken, waves[1].Returned, waves[1].Amount})
	})
}

func TestTheStoryOfAClaim(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		put(t, db, &stored.ClaimRow{
			ID: "k", CampaignID: "spring", Seq: 1, UserID: "ada", Quantity: 1, Status: models.ClaimRedeemed, OrderID: new("o-1"),
			ClaimedAt: noon, SyncedAt: noon, ResolvedAt: &noon,
		}, &stored.OutboxRow{ID: "t", LotID: "spring", Kind: stored.OutboxEvent, ClaimID: new("k"), Payload: []byte("{}"), CreatedAt: noon},
			&stored.ParkedEvent{ID: "parked", LotID: "spring", Reason: "r", Payload: []byte("{}"), ParkedAt: noon},
			&stored.ClaimRow{
				ID: "extended", CampaignID: "wide", Shard: 2, Seq: 1, UserID: "ada", Quantity: 1, Status: models.ClaimClaimed,
				ClaimedAt: noon, SyncedAt: noon,
			}, &stored.OutboxRow{ID: "e", LotID: "wide#2", Kind: stored.OutboxEvent, ClaimID: new("extended"), Payload: []byte("{}"), CreatedAt: noon})
		require.NoError(t, db.Exec("INSERT INTO claim_orders (order_id, claim_id) VALUES ('o-1', 'k')").Error)
		r := records.New(db)
		story, err := r.Story(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, "ada", story.Row.UserID)
		require.Nil(t, story.Parked)
		require.Len(t, story.Outbox, 1)
		story, err = r.Story(t.Context(), "extended")
		require.NoError(t, err)
		require.Len(t, story.Outbox, 1, "of a shard, and not released")
		story, err = r.Story(t.Context(), "parked")
		require.NoError(t, err)
		require.Nil(t, story.Row)
		require.Equal(t, "r", story.Parked.Reason)
		_, err = r.Story(t.Context(), "nothing")
		require.ErrorIs(t, err, models.ErrNotFound)

		rows, err := r.ClaimsOfOrder(t.Context(), "o-1", 9)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Equal(t, "k", rows[0].ID)
	})
}

// The console warns of what drifts or is parked, and of webhooks that wait.
func TestTroubleIsCountedOverAllCampaigns(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		r := records.New(db)
		none, err := r.Trouble(t.Context())
		require.NoError(t, err)
		require.Equal(t, stored.Trouble{}, none)
		now := time.Now().UTC().Truncate(time.Millisecond)
		compared := func(campaign string, drift int64, ago time.Duration) {
			id, err := uuid.NewV7()
			require.NoError(t, err)
			put(t, db, &stored.Reconciliation{ID: id.String(), CampaignID: campaign, Drift: &drift, At: now.Add(-ago)})
		}
		compared("mended", 2, time.Minute)
		compared("mended", 0, time.Second)
		compared("broken", 0, time.Minute)
		compared("broken", -1, 2*time.Second)
		compared("broken", -1, time.Second)
		put(t, db, &stored.Reconciliation{ID: "01900000-0000-7000-8000-000000000000", CampaignID: "long ago", Drift: new(int64(5)), At: now.Add(-time.Hour)})
		put(t, db, &stored.ParkedEvent{ID: "k", LotID: "spring", Reason: "r", Payload: []byte("{}"), ParkedAt: now})
		found, err := r.Trouble(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, found.Parked)
		require.EqualValues(t, 1, found.Drifting)
		require.WithinDuration(t, now.Add(-time.Second), *found.ComparedAt, time.Millisecond)

		for i, e := range []stored.WebhookEvent{
			{Endpoint: "shop", At: noon.Add(time.Second)}, {Endpoint: "shop", At: noon}, {Endpoint: "shop", ParkedAt: &noon, At: noon.Add(-time.Hour)},
			{Endpoint: "mail", ParkedAt: &noon, At: noon},
		} {
			e.No, e.EventID, e.CampaignID, e.Payload, e.CreatedAt = int64(i), fmt.Sprint("e", i), "c", []byte("{}"), noon
			put(t, db, &e)
		}
		all, err := r.Webhooks(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.Equal(t, models.WebhookLag{Endpoint: "mail", Parked: 1}, all[0])
		require.WithinDuration(t, noon, *all[1].Oldest, 0, "those that were given up do not wait")
		all[1].Oldest = nil
		require.Equal(t, models.WebhookLag{Endpoint: "shop", Waiting: 2, Parked: 1}, all[1])
	})
}
