package writer_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/parking"
	"dibs/syncer/writer"
)

func fileStore(t *testing.T, lots ...string) *gorm.DB {
	t.Helper()
	db := syncertest.OpenStore(t, sqlstore.Config{Path: filepath.Join(t.TempDir(), "dibs.db")})
	for _, id := range lots {
		campaignID, shard := models.SplitShardID(id)
		if shard == 0 {
			syncertest.AddCampaign(t, db, id, 1000)
			continue
		}
		require.NoError(t, db.Exec("INSERT INTO lots (campaign_id, shard, partition_no, total, updated_at) VALUES (?, ?, 0, 1000, ?)",
			campaignID, shard, time.Now()).Error)
	}
	return db
}

func ofShard(n int, seq int64) event.Event {
	e := syncertest.ClaimsOf("c", seq, 1)[0]
	e.Shard = n
	return e
}

func parkedReason(t *testing.T, db *gorm.DB) (reason string) {
	t.Helper()
	require.Len(t, syncertest.ParkedIDs(t, db), 1)
	require.NoError(t, db.Raw("SELECT reason FROM parked_events").Scan(&reason).Error)
	return reason
}

func claimsIn(t *testing.T, db *gorm.DB) (n int) {
	t.Helper()
	require.NoError(t, db.Raw("SELECT COUNT(*) FROM claims").Scan(&n).Error)
	return n
}

func TestConflicts_AnIDIsOneClaims(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(e *event.Event){
		"user":     func(e *event.Event) { e.UserID = "another" },
		"quantity": func(e *event.Event) { e.Quantity++ },
		"shard":    func(e *event.Event) { e.Shard = 2 },
		"campaign": func(e *event.Event) { e.CampaignID = "d" },
	} {
		first := ofShard(1, 1)
		second := first
		change(&second)
		for when, size := range map[string]int{"after it": 1, "beside it": 2} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				db := fileStore(t, "c", "c#1", "c#2", "d", "d#1")
				w := syncertest.StartWriter(t, writer.Config{DB: db, FlushSize: size, FlushInterval: 5 * time.Second})
				for some := range slices.Chunk([]event.Event{first, second}, size) {
					require.NoError(t, syncertest.SubmitAll(t.Context(), w, some))
				}
				require.Contains(t, parkedReason(t, db), "a different claim has this id")
				require.Equal(t, 1, claimsIn(t, db))
			})
		}
	}
}

// A packet has one owner, who gets its
// amount, and none after it was returned.
func TestConflicts_APacketIsOneClaims(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		claims     [][]int64 // the amounts of the claims of each flush
		isReturned bool
		written    int
		reason     string
	}{
		"it has an owner":          {claims: [][]int64{{100}, {100}}, written: 1, reason: "packet p is of another claim"},
		"two claims of it at once": {claims: [][]int64{{100, 100}}, written: 1, reason: "packet p is of another claim"},
		"another amount":           {claims: [][]int64{{99}}, reason: "another amount"},
		"returned":                 {claims: [][]int64{{100}}, isReturned: true, reason: "returned to its sender"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := fileStore(t, "c")
			syncertest.AddPacket(t, db, "c", "p", 100)
			if one.isReturned {
				require.NoError(t, db.Exec("UPDATE packets SET returned_at = ?", time.Now()).Error)
			}
			w := syncertest.StartWriter(t, writer.Config{DB: db, FlushSize: 2, FlushInterval: 50 * time.Millisecond})
			seq := int64(0)
			for _, amounts := range one.claims {
				var events []event.Event
				for _, amount := range amounts {
					seq++
					e := syncertest.ClaimsOf("c", seq, 1)[0]
					e.PacketID, e.Amount = "p", &amount
					events = append(events, e)
				}
				require.NoError(t, syncertest.SubmitAll(t.Context(), w, events))
			}
			require.Contains(t, parkedReason(t, db), one.reason)
			require.Equal(t, one.written, claimsIn(t, db))
			var ids, owners []string
			require.NoError(t, db.Raw("SELECT id FROM claims").Scan(&ids).Error)
			require.NoError(t, db.Raw("SELECT claim_id FROM packets WHERE claim_id IS NOT NULL").Scan(&owners).Error)
			require.Equal(t, ids, owners)
		})
	}
}

// A parked claim counts even if another claim has its seq.
func TestReadParked_CountsWhatHoldsItsUnits(t *testing.T) {
	t.Parallel()
	db := fileStore(t, "c", "c#1", "c#2")
	w := syncertest.StartWriter(t, writer.Config{DB: db})
	written := ofShard(1, 1)
	require.NoError(t, syncertest.Submit(t.Context(), w, written))
	seqTaken := ofShard(1, 1)
	twice := ofShard(1, 2)
	twiceAgain := ofShard(1, 2)
	discarded := ofShard(1, 3)
	otherLot := ofShard(2, 4)
	lone := ofShard(1, 5)
	for _, e := range []event.Event{written, seqTaken, twice, twiceAgain, discarded, otherLot, lone} {
		payload, err := json.Marshal(e)
		require.NoError(t, err)
		row := parking.Row(&event.Raw{Event: e, Payload: payload}, "a test")
		require.NoError(t, parking.Put(db, &row, sqlstore.Now()))
	}
	require.NoError(t, db.Exec("UPDATE parked_events SET discarded_at = ? WHERE id = ?", time.Now(), discarded.ID).Error)
	require.NoError(t, db.Exec("UPDATE parked_events SET campaign_id = 'c#1'").Error)
	parked, err := parking.Read(t.Context(), db, "c#1")
	require.NoError(t, err)
	counts := make(map[string]bool)
	isWritten := make(map[string]bool)
	for _, p := range parked.All {
		counts[p.Event.ID] = p.Counts
		isWritten[p.Event.ID] = p.Written
	}
	require.Len(t, counts, 5, "neither the discarded one nor that of another shard")
	require.True(t, isWritten[written.ID])
	require.False(t, counts[written.ID])
	units := int64(0)
	for _, e := range []event.Event{seqTaken, twice, twiceAgain, lone} {
		require.True(t, counts[e.ID])
		units += e.Quantity
	}
	require.EqualValues(t, 4, parked.Claims)
	require.Equal(t, units, parked.Units)
}
