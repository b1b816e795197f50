package writer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/models"
	"dibs/syncer/writer"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// lockable is a database whose lock waits end after a second, as those of a writer do after ten, with the given campaigns.
func lockable(t *testing.T, campaigns ...string) *gorm.DB {
	t.Helper()
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: testenv.Database(t).DSN + "&innodb_lock_wait_timeout=1"})
	for _, id := range campaigns {
		syncertest.AddCampaign(t, db, id, 100_000)
	}
	return db
}

// lockRow has a stranger's transaction hold the row of a campaign until free is called.
func lockRow(t *testing.T, db *gorm.DB, id string) (free func()) {
	t.Helper()
	stranger := db.Begin()
	require.NoError(t, stranger.Exec("UPDATE lots SET name = name WHERE id = ?", id).Error)
	t.Cleanup(func() { _ = stranger.Rollback().Error })
	return func() { require.NoError(t, stranger.Commit().Error) }
}

func TestWriter_ALockedCampaignDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	var ids []string
	for i := range 30 {
		ids = append(ids, fmt.Sprintf("other%d", i))
	}
	db := lockable(t, append(ids, "locked")...)
	reg := prometheus.NewRegistry()
	w := startTuned(t, writer.Config{DB: db, FlushSize: 500, FlushInterval: 20 * time.Millisecond, Registerer: reg}, writer.Tuning{})
	free := lockRow(t, db, "locked")
	waiting := syncertest.ClaimsOf("locked", 1, 60)
	answers := submitLater(t.Context(), w, waiting[:50])
	others := make(map[string][]models.Event)
	for round := range int64(3) {
		var all []models.Event
		for _, id := range ids {
			events := syncertest.ClaimsOf(id, 1+10*round, 10)
			others[id], all = append(others[id], events...), append(all, events...)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		require.NoError(t, syncertest.SubmitAll(ctx, w, all), "round %d, beside the lock", round)
		cancel()
	}
	for id, events := range others {
		syncertest.RequireBooks(t, db, id, events)
	}
	require.Equal(t, 50, w.Held(), "none of the locked campaign is answered, and nothing else is held")
	require.InDelta(t, 1, gauge(t, reg, "dibs_writer_locked_campaigns"), 0)

	more := submitLater(t.Context(), w, waiting[40:]) // ten of them again
	require.Eventually(t, func() bool { return w.Held() == 70 }, time.Minute, time.Millisecond)
	tries := clashes(t, reg)
	require.Eventually(t, func() bool { return clashes(t, reg) > tries }, time.Minute, time.Millisecond, "the next try has all of them")
	free()
	require.NoError(t, answers.Wait())
	require.NoError(t, more.Wait())
	syncertest.RequireBooks(t, db, "locked", waiting)
	require.Empty(t, syncertest.ParkedIDs(t, db))
	require.Eventually(t, func() bool { return w.Held() == 0 }, time.Minute, time.Millisecond)
	require.InDelta(t, 0, gauge(t, reg, "dibs_writer_locked_campaigns"), 0)
}

// The events of one batch of many campaigns are settled as each campaign is written.
func TestWriter_ALockedCampaignHoldsOnlyItsPartOfABatch(t *testing.T) {
	t.Parallel()
	db := lockable(t, "free", "locked")
	w := startTuned(t, writer.Config{DB: db, FlushSize: 50, FlushInterval: 20 * time.Millisecond}, writer.Tuning{})
	free := lockRow(t, db, "locked")
	var batch []models.RawEvent
	for i, e := range syncertest.ClaimsOf("free", 1, 100) {
		batch = append(batch, models.RawEvent{Event: e}, models.RawEvent{Event: syncertest.ClaimsOf("locked", int64(i+1), 1)[0]})
	}
	settled := make(chan int, len(batch)) // it blocks, and the test with it, if one is settled twice
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Submit(t.Context(), batch, func(i int, err error) {
			if err == nil {
				settled <- i
			}
		})
	}()
	for range 100 {
		require.Equal(t, "free", batch[<-settled].CampaignID)
	}
	free()
	for range 100 {
		require.Equal(t, "locked", batch[<-settled].CampaignID)
	}
	<-done
	require.Empty(t, settled)
}

// clashes is how often a flush met a lock or a deadlock.
func clashes(t *testing.T, reg *prometheus.Registry) (n float64) {
	t.Helper()
	all, err := reg.Gather()
	require.NoError(t, err)
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == "dibs_flush_retries_total" && m.GetLabel()[0].GetValue() == "clash" {
				n = m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// Claims that are held back count when they are written, and not with the flush that they left.
func TestWriter_AFlushDoesNotCountWhatItHoldsBack(t *testing.T) {
	t.Parallel()
	db := fileStore(t, "free", "queued")
	w := startTuned(t, writer.Config{DB: db, FlushSize: 2, FlushInterval: 5 * time.Second}, writer.Tuning{})
	w.Queue("queued")
	ctx, cancel := context.WithCancel(t.Context())
	queued := submitLater(ctx, w, syncertest.ClaimsOf("queued", 1, 1))
	require.Eventually(t, func() bool { return w.Pending() == 1 }, time.Minute, time.Millisecond)
	events := syncertest.ClaimsOf("free", 1, 1)
	require.NoError(t, syncertest.SubmitAll(t.Context(), w, events))
	syncertest.RequireBooks(t, db, "free", events)
	syncertest.RequireBooks(t, db, "queued", nil)
	cancel()
	require.ErrorIs(t, queued.Wait(), context.Canceled)
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	n, err := testutil.GatherAndCount(reg, name)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	all, err := reg.Gather()
	require.NoError(t, err)
	for _, family := range all {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

// What a locked campaign holds in memory is bounded, and a stop does not wait for the lock.
func TestWriter_ALockedCampaignIsBoundedAndGivenUpAtClose(t *testing.T) {
	t.Parallel()
	db := lockable(t, "locked")
	cfg := writer.Config{DB: db, FlushSize: 10, FlushInterval: time.Millisecond, Logger: syncertest.Quiet()}
	w, err := writer.NewTuned(cfg, writer.Tuning{PendingMax: 25})
	require.NoError(t, err)
	lockRow(t, db, "locked")
	events := syncertest.ClaimsOf("locked", 1, 60)
	answers := submitLater(t.Context(), w, events)
	require.Eventually(t, func() bool { return w.Held() == 25 && w.Pending() == 0 }, time.Minute, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, w.Close(ctx), context.DeadlineExceeded)
	require.ErrorIs(t, answers.Wait(), writer.ErrClosed)
	require.Zero(t, w.Held())
	syncertest.RequireBooks(t, db, "locked", nil)
}

// Claims that wait for a lock when the writer closes are not written, and their callers are told so.
func TestWriter_ALockedCampaignGivenUpIsToldToEachCaller(t *testing.T) {
	t.Parallel()
	db := lockable(t, "locked")
	reg := prometheus.NewRegistry()
	cfg := writer.Config{DB: db, FlushSize: 10, FlushInterval: time.Millisecond, Logger: syncertest.Quiet(), Registerer: reg}
	w, err := writer.NewTuned(cfg, writer.Tuning{})
	require.NoError(t, err)
	lockRow(t, db, "locked")
	var batch []models.RawEvent
	for _, e := range syncertest.ClaimsOf("locked", 1, 10) {
		batch = append(batch, models.RawEvent{Event: e})
	}
	settled := make(chan error, len(batch))
	go w.Submit(t.Context(), batch, func(_ int, err error) { settled <- err })
	require.Eventually(t, func() bool { return gauge(t, reg, "dibs_writer_locked_campaigns") > 0 }, time.Minute, 10*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, w.Close(ctx), context.DeadlineExceeded)
	for range batch {
		require.ErrorIs(t, <-settled, writer.ErrClosed)
	}
	syncertest.RequireBooks(t, db, "locked", nil)
}
