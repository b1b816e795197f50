package writer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/testkit/syncertest"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/writer"
)

// A Redis that was rolled back sold units again. Claims in mode mysql that
// MySQL lacks were never answered: if their units are sold they are dropped,
// with an event. Others may have been answered, and are written.
func TestWriter_DropsClaimsThatNobodyWasToldOf(t *testing.T) {
	t.Parallel()
	for mode, sold := range map[string]int64{event.ModeMySQL: 10, "": 13} {
		t.Run("mode "+mode, func(t *testing.T) {
			t.Parallel()
			syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
				syncertest.AddCampaign(t, db, "c", 10)
				w := syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: time.Millisecond})
				f := newFeed(t, db, w, 0)
				had := singlesOf(event.ModeMySQL, 1, 8)
				f.send(had...)
				again := singlesOf(mode, 6, 5) // Redis had lost the last three
				// the stream is read again from an earlier entry
				f.send(append(had[3:], again...)...)
				syncertest.RequireBooks(t, db, "c", append(had, again[:sold-8]...))
				var want []string
				for _, e := range again[sold-8:] {
					want = append(want, e.ID)
				}
				require.Equal(t, want, droppedIn(t, db), "the first in the stream have the units")
				f.send(event.Event{
					Type: event.LotLoaded, ID: "load", CampaignID: "c", Epoch: 2, Seq: 15, Claims: sold, Quantity: sold, Sold: sold,
				})
				var lost int64
				require.NoError(t, db.Raw("SELECT lost_claims FROM lots WHERE campaign_id = 'c' AND epoch = 2").Scan(&lost).Error)
				require.Zero(t, lost, "seqs of dropped claims are no claims")
			})
		})
	}
}

func TestWriter_ClaimsOfUnitsThatWereJustReleasedAreNotDropped(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "c", 3)
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: time.Minute})
		f := newFeed(t, db, w, 0)
		claims := singlesOf(event.ModeMySQL, 1, 5)
		f.send(claims[:3]...)
		release := event.Event{
			V: 1, Type: event.ClaimReleased, ID: "r", CampaignID: "c", ClaimID: claims[0].ID, ClaimedAt: &claims[0].At, UserID: claims[0].UserID,
			Quantity: 1, Decision: 1, At: claims[0].At,
		}
		f.send(release, claims[3], claims[4])
		require.Equal(t, []string{claims[4].ID}, droppedIn(t, db), "one unit came back")
	})
}

func TestWriter_ClaimsOfPacketsThatJustCameBackAreNotDropped(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		c := syncertest.CampaignOf("c", 0)
		c.Kind = models.KindPacket
		syncertest.AddCampaigns(t, db, c)
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: time.Millisecond})
		f := newFeed(t, db, w, 0)
		claim := singlesOf(event.ModeMySQL, 1, 1)[0]
		claim.PacketID = "p"
		claim.Amount = new(int64(7))
		f.send(event.Event{
			V: 1, Type: event.PacketsPushed, ID: "push", CampaignID: "c", At: claim.At, Pushed: &event.PushedPackets{
				Batch: models.PacketBatchRow{FirstPosition: 1, Packets: 1, Amount: 7, RequestKey: "k", Digest: "d", CreatedAt: claim.At.Time},
				Upto:  1, Packets: []event.PushedPacket{{Position: 1, ID: "p", Amount: 7}},
			},
		}, claim)
		require.Empty(t, droppedIn(t, db))
		require.Equal(t, claim.ID, *syncertest.PacketsOf(t, db, "c")[0].ClaimID)

		second, third := singlesOf(event.ModeMySQL, 2, 1)[0], singlesOf("", 3, 1)[0]
		for _, e := range []*event.Event{&second, &third} {
			e.PacketID, e.Amount = "p", claim.Amount
			f.send(*e)
		}
		require.Equal(t, []string{second.ID}, droppedIn(t, db), "the packet is taken")
		require.Equal(t, []string{third.ID}, syncertest.ParkedIDs(t, db))
	})
}

func TestWriter_ClaimsOfUnitsThatJustCameAreNotDropped(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		sharded(t, db)
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: time.Millisecond})
		events := singlesOf(event.ModeMySQL, 1, 61)
		for i := range events {
			events[i].Shard = 1
		}
		moved := []event.Event{half(debited, "m", 2, 1, 10), half(credited, "m", 1, 2, 10)}
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, append(moved, events[:60]...)))
		require.Empty(t, droppedIn(t, db))
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, append(moved, events...)))
		require.Equal(t, []string{events[60].ID}, droppedIn(t, db), "they came once")
		require.Equal(t, "60 units, 60 claimed, none", figures(t, db)[0])
	})
}

func droppedIn(t *testing.T, db *gorm.DB) (ids []string) {
	t.Helper()
	var rows []stored.OutboxRow
	require.NoError(t, db.Where("kind = ?", stored.OutboxEvent).Order("id").Find(&rows).Error)
	for i := range rows {
		e, err := event.Decode(rows[i].Payload)
		require.NoError(t, err)
		require.Equal(t, event.ClaimsDropped, e.Type)
		require.Equal(t, rows[i].LotID, e.LotID())
		ids = append(ids, e.IDs...)
	}
	return ids
}

func TestWriter_ClaimsOfUnitsThatJustWentAreDropped(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		sharded(t, db)
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: time.Millisecond})
		events := singlesOf(event.ModeMySQL, 1, 50)
		for i := range events {
			events[i].Shard = 1
		}
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, events[:45]))
		// Redis lost some of them, gave free units away, and sold others again
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, append([]event.Event{half(debited, "m", 1, 2, 10)}, events[45:]...)))
		require.Len(t, droppedIn(t, db), 5)
	})
}
