package writer_test

import (
	"fmt"
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/models/event"
	"dibs/syncer/writer"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// lockRow lets another transaction lock the
// row of a campaign until free is called.
func lockRow(t *testing.T, db *gorm.DB, id string) (free func()) {
	t.Helper()
	stranger := db.Begin()
	require.NoError(t, stranger.Exec("UPDATE lots SET total = total WHERE id = ?", id).Error)
	t.Cleanup(func() { _ = stranger.Rollback().Error })
	return func() { require.NoError(t, stranger.Commit().Error) }
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	all, err := reg.Gather()
	require.NoError(t, err)
	for _, family := range all {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

func waiting(t *testing.T, db *gorm.DB, id string) (claims int64) {
	t.Helper()
	require.NoError(t, db.Raw("SELECT waiting FROM stock_watch WHERE campaign_id = ?", id).Scan(&claims).Error)
	return claims
}

// A locked campaign's claims are written, and the offset moves. Its
// counters lag, as stock_watch reports, until the lock is released.
// Other campaigns only wait once for a lock.
func TestLocked_TheClaimsAreWrittenAndTheCountersFollow(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	ids := []string{"locked"}
	for i := range 5 {
		ids = append(ids, fmt.Sprint("other", i))
	}
	for _, id := range ids {
		syncertest.AddCampaign(t, db, id, 100_000)
	}
	reg := prometheus.NewRegistry()
	w := startTuned(t, writer.Config{DB: db, FlushInterval: time.Millisecond, Registerer: reg}, writer.Tuning{})
	f := newFeed(t, db, w, 0)
	free := lockRow(t, db, "locked")
	all := make(map[string][]event.Event)
	round := func() (longest time.Duration) {
		for n := range 4 {
			var events []event.Event
			for _, id := range ids {
				some := syncertest.ClaimsOf(id, int64(len(all[id])+1), 10)
				all[id] = append(all[id], some...)
				events = append(events, some...)
			}
			began := time.Now()
			f.send(events...)
			if n > 0 {
				longest = max(longest, time.Since(began))
			}
		}
		return longest
	}
	require.Less(t, round(), 900*time.Millisecond, "only the first one waits for the lock")
	for _, id := range ids[1:] {
		syncertest.RequireBooks(t, db, id, all[id])
	}
	behind := syncertest.BooksOf(t, db, "locked")
	require.Equal(t, []int64{40, 0}, []int64{behind.Rows, behind.SyncedSeq})
	require.EqualValues(t, 40, waiting(t, db, "locked"))
	require.InDelta(t, 1, gauge(t, reg, "dibs_writer_locked_campaigns"), 0)
	free()
	require.Eventually(t, func() bool { return waiting(t, db, "locked") == 0 }, time.Minute, 10*time.Millisecond)
	round()
	require.Eventually(t, func() bool { return waiting(t, db, "locked") == 0 }, time.Minute, 10*time.Millisecond)
	syncertest.RequireBooks(t, db, "locked", all["locked"])
	require.InDelta(t, 0, gauge(t, reg, "dibs_writer_locked_campaigns"), 0)
	require.Empty(t, syncertest.ParkedIDs(t, db))
}

func TestLocked_ARefusedChangeOfALotWaits(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	for _, id := range []string{"bad", "good"} {
		syncertest.AddCampaign(t, db, id, 1000)
	}
	require.NoError(t, db.Exec("ALTER TABLE lots ADD CONSTRAINT not_bad CHECK (id <> 'bad' OR claimed = 0)").Error)
	w := syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: time.Millisecond})
	f := newFeed(t, db, w, 0)
	bad := syncertest.ClaimsOf("bad", 1, 3)
	good := syncertest.ClaimsOf("good", 1, 3)
	f.send(append(bad, good...)...)
	syncertest.RequireBooks(t, db, "good", good)
	require.EqualValues(t, 3, waiting(t, db, "bad"))
	require.NoError(t, db.Exec("ALTER TABLE lots DROP CONSTRAINT not_bad").Error)
	require.Eventually(t, func() bool { return waiting(t, db, "bad") == 0 }, time.Minute, 10*time.Millisecond)
	syncertest.RequireBooks(t, db, "bad", bad)
}
