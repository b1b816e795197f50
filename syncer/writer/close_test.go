package writer_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/models"
	"dibs/syncer/writer"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

// submitLater submits every event at once; Wait gives the answers.
func submitLater(ctx context.Context, w *writer.Writer, events []models.Event) *errgroup.Group {
	var g errgroup.Group
	for _, e := range events {
		g.Go(func() error { return syncertest.Submit(ctx, w, e, nil) })
	}
	return &g
}

func TestWriter_CloseFlushesWhatIsPendingAndSaysSo(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "c", 1000)
		var log testenv.Buffer
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		events := syncertest.ClaimsOf("c", 1, 30) // 60 units
		answers := submitLater(t.Context(), w, events)
		require.Eventually(t, func() bool { return w.Pending() == 30 }, time.Minute, time.Millisecond)
		require.NoError(t, w.Close(t.Context()))
		require.NoError(t, answers.Wait(), "each was answered with yes")
		syncertest.RequireBooks(t, db, "c", events)
		require.Contains(t, log.String(), "events_flushed_at_close=30 units_flushed_at_close=60 events_not_flushed=0")

		require.ErrorIs(t, syncertest.Submit(t.Context(), w, events[0], nil), writer.ErrClosed)
		require.NoError(t, w.Close(t.Context()), "twice is no harm")
	})
}

// A server that does not answer keeps Close no longer than its deadline, and no one is told yes.
func TestWriter_CloseGivesUpAtItsDeadlineAndAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	server, db := sqlServer(t)
	var log testenv.Buffer
	w, err := writer.New(writer.Config{DB: db, FlushInterval: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	pause(t, server, db)
	defer server.Resume()
	events := syncertest.ClaimsOf("c", 1, 30)
	answers := submitLater(t.Context(), w, events)
	require.Eventually(t, func() bool { return w.Held() == 30 }, time.Minute, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	started := time.Now()
	require.ErrorIs(t, w.Close(ctx), context.DeadlineExceeded)
	require.Less(t, time.Since(started), 5*time.Second)
	require.ErrorIs(t, answers.Wait(), writer.ErrClosed)
	// One that had come no further than the door is turned away without being counted.
	require.Regexp(t, `events_flushed_at_close=0 units_flushed_at_close=0 events_not_flushed=(2\d|30)\b`, log.String())
}

func TestWriter_BlocksSubmittersAbovePendingMax(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	syncertest.AddCampaign(t, db, "c", 1000)
	gate := make(chan struct{})
	step := func(step string) {
		if step == "begin" {
			<-gate
		}
	}
	w := startTuned(t, writer.Config{DB: db, FlushSize: 10, FlushInterval: time.Millisecond}, writer.Tuning{PendingMax: 25, Step: step})
	events := syncertest.ClaimsOf("c", 1, 60)
	answers := submitLater(t.Context(), w, events)
	require.Eventually(t, func() bool { return w.Held() == 25 }, time.Minute, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, syncertest.Submit(ctx, w, syncertest.ClaimsOf("c", 61, 1)[0], nil), context.DeadlineExceeded)
	require.Equal(t, 25, w.Held())
	close(gate)
	require.NoError(t, answers.Wait())
	syncertest.RequireBooks(t, db, "c", events)
	require.Eventually(t, func() bool { return w.Held() == 0 }, time.Minute, time.Millisecond)
}

func TestWriter_FlushesByTimeByTheGivenClock(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	syncertest.AddCampaign(t, db, "c", 1000)
	clock, reg := clockwork.NewFakeClock(), prometheus.NewRegistry()
	w := startTuned(t, writer.Config{DB: db, FlushInterval: 50 * time.Millisecond, Registerer: reg}, writer.Tuning{Clock: clock})
	events := syncertest.ClaimsOf("c", 1, 3)
	answers := submitLater(t.Context(), w, events)
	require.Eventually(t, func() bool { return w.Pending() == 3 }, time.Minute, time.Millisecond)
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	clock.Advance(49 * time.Millisecond)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP dibs_writer_oldest_unsynced_seconds Age of the oldest event that waits in the writer; 0 when none does.
# TYPE dibs_writer_oldest_unsynced_seconds gauge
dibs_writer_oldest_unsynced_seconds 0.049
`), "dibs_writer_oldest_unsynced_seconds"))
	require.Equal(t, 3, w.Pending())
	clock.Advance(time.Millisecond)
	require.NoError(t, answers.Wait())
	require.Equal(t, int64(1), syncertest.BooksOf(t, db, "c").Flushes)
}

func TestWriter_FlushesBySizeWithoutWaiting(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	syncertest.AddCampaign(t, db, "c", 1000)
	w := startTuned(t, writer.Config{DB: db, FlushSize: 10}, writer.Tuning{Clock: clockwork.NewFakeClock()}) // time stands still
	events := syncertest.ClaimsOf("c", 1, 20)
	require.NoError(t, syncertest.SubmitAll(t.Context(), w, events[:10]))
	require.NoError(t, syncertest.SubmitAll(t.Context(), w, events[10:]))
	syncertest.RequireBooks(t, db, "c", events)
}
