package writer_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/models/event"
	"dibs/syncer/offset"
	"dibs/syncer/writer"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func TestWriter_CloseFlushesWhatIsPendingAndSaysSo(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "c", 1000)
		var log testenv.Buffer
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		f := newFeed(t, db, w, 0)
		events := syncertest.ClaimsOf("c", 1, 30) // 60 units
		require.NoError(t, f.add(events...))
		require.NoError(t, w.Close(t.Context()))
		syncertest.RequireBooks(t, db, "c", events)
		require.Contains(t, log.String(), "events_flushed_at_close=30 units_flushed_at_close=60 events_not_flushed=0")

		_, _, err := w.Begin(t.Context(), 0)
		require.ErrorIs(t, err, writer.ErrClosed)
	})
}

func TestWriter_CloseGivesUpAtItsDeadline(t *testing.T) {
	t.Parallel()
	server, db := sqlServer(t)
	var log testenv.Buffer
	w, err := writer.New(writer.Config{DB: db, FlushInterval: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	f := newFeed(t, db, w, 0)
	pause(t, server, db)
	require.NoError(t, f.add(syncertest.ClaimsOf("c", 1, 30)...))
	require.Eventually(t, func() bool { return w.Pending() == 0 }, time.Minute, time.Millisecond, "the flush is under way")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	started := time.Now()
	require.ErrorIs(t, w.Close(ctx), context.DeadlineExceeded)
	require.Less(t, time.Since(started), 5*time.Second)
	require.Contains(t, log.String(), "events_flushed_at_close=0 units_flushed_at_close=0 events_not_flushed=30")
	server.Resume()
	offsets, err := offset.Read(t.Context(), db, 0)
	require.NoError(t, err)
	require.True(t, new(offsets[0]).IsStart())
}

func TestWriter_CloseWaitsForNoMySQLThatHangsWhileNothingIsPending(t *testing.T) {
	t.Parallel()
	server, db := sqlServer(t)
	pool, err := db.DB()
	require.NoError(t, err)
	clock := clockwork.NewFakeClock()
	w := startTuned(t, writer.Config{DB: db}, writer.Tuning{Clock: clock})
	newFeed(t, db, w, 0)
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	pause(t, server, db)
	require.Eventually(t, func() bool { return pool.Stats().InUse == 0 }, time.Minute, time.Millisecond)
	clock.Advance(2 * time.Second)
	require.Eventually(t, func() bool { return pool.Stats().InUse > 0 }, time.Minute, time.Millisecond, "it compares offsets")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, w.Close(ctx))
}

// A flush of many campaigns makes the next one wait, at most half a
// second. A flush of one campaign ends that.
func TestWriter_FlushesLessOftenWhileThereAreManyCampaigns(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	for i := range 150 {
		syncertest.AddCampaign(t, db, fmt.Sprint("c", i), 1000)
	}
	clock, reg := clockwork.NewFakeClock(), prometheus.NewRegistry()
	w := startTuned(t, writer.Config{DB: db, FlushInterval: 50 * time.Millisecond, Registerer: reg}, writer.Tuning{Clock: clock})
	f := newFeed(t, db, w, 0)
	for n, one := range []struct {
		campaigns int
		wait      time.Duration
	}{{20, 50 * time.Millisecond}, {150, 100 * time.Millisecond}, {1, 500 * time.Millisecond}, {1, 50 * time.Millisecond}} {
		var events []event.Event
		for i := range one.campaigns {
			events = append(events, syncertest.ClaimsOf(fmt.Sprint("c", i), int64(n+1), 1)...)
		}
		require.NoError(t, f.add(events...))
		require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
		clock.Advance(one.wait - 1)
		require.Equal(t, one.campaigns, w.Pending(), "flush %d is not due", n)
		require.InDelta(t, one.wait.Seconds(), gauge(t, reg, "dibs_writer_oldest_unsynced_seconds"), 0.001)
		// the writer may set its timer between two steps of the clock
		require.Eventually(t, func() bool {
			clock.Advance(1)
			return w.Pending() == 0
		}, time.Minute, time.Millisecond)
		f.applied()
	}
}

func TestWriter_FlushesAtOnceWhatAnswersWaitFor(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "c", 100)
		told := make(chan map[int]event.Offset, 100)
		w := syncertest.StartWriter(t, writer.Config{
			DB: db, FlushInterval: time.Minute, Applied: func(offsets map[int]event.Offset) { told <- offsets },
		})
		f := newFeed(t, db, w, 0)
		events := singlesOf(event.ModeMySQL, 1, 3)
		began := time.Now()
		for i := range events {
			require.NoError(t, f.add(events[i]))
			require.Equal(t, map[int]event.Offset{0: f.at}, <-told)
		}
		require.GreaterOrEqual(t, time.Since(began), 2*writer.AwaitedApart)
		syncertest.RequireBooks(t, db, "c", events)

		require.NoError(t, f.add(singlesOf("", 4, 1)...))
		select {
		case <-told:
			require.Fail(t, "nobody waits for this one")
		case <-time.After(20 * writer.AwaitedApart):
		}
	})
}
