package residency_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/residency"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// goBack puts Redis back to the snapshot that it saved last.
func goBack(h *syncertest.Stack) {
	h.T.Helper()
	require.NoError(h.T, h.Redis.ConfigSet(h.T.Context(), "save", "").Err())
	h.Server.Kill()
	h.Server.Start()
}

func save(h *syncertest.Stack) { h.T.Helper(); require.NoError(h.T, h.Redis.Save(h.T.Context()).Err()) }

func watch(h *syncertest.Stack) (broken int) {
	h.T.Helper()
	broken, err := h.Maintainer().Watch(h.T.Context())
	require.NoError(h.T, err)
	return broken
}

// rollBack has 94 of 100 units claimed, of which Redis remembers 7, and MySQL all.
func rollBack(h *syncertest.Stack) (id string) {
	h.T.Helper()
	id = h.Create(100, nil)
	h.Claim(id, syncertest.Asks("early", 7)...)
	save(h)
	h.Claim(id, syncertest.Asks("tail", 87)...)
	h.Sync()
	require.Zero(h.T, watch(h))
	goBack(h)
	return id
}

// One process last looked before the tail that is lost, another saw it: once the latter asks, no one gets a yes any more.
func TestRolledBack_NotOneMoreYesAfterTheFirstSawIt(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := rollBack(h)
	require.Equal(t, models.OutcomeClaimed, h.Claim(id, syncertest.Ask("x", ""))[0].Outcome, "no one has seen it yet")
	replies, _ := h.ClaimAfter(id, lua.Position{Epoch: 1, Seq: 94}, syncertest.Ask("y", ""))
	require.Equal(t, models.OutcomeRolledBack, replies[0].Outcome)
	replies, _ = h.ClaimAfter(id, lua.Position{Epoch: 1, Seq: 5}, syncertest.Ask("z", ""))
	require.Equal(t, models.OutcomeAbsent, replies[0].Outcome)
}

// The claims that follow hide the tip, and then even the count: the stream has had more entries than were known, and Redis more claims
// than MySQL.
func TestRolledBack_ClaimsThatHideIt(t *testing.T) {
	t.Parallel()
	for _, more := range []int{0, 1, 90} {
		h := syncertest.NewStack(t)
		id := rollBack(h)
		for _, r := range h.Claim(id, syncertest.Asks("more", more)...) {
			require.Equal(t, models.OutcomeClaimed, r.Outcome)
		}
		var log testenv.Buffer
		reg := prometheus.NewRegistry()
		hydrator := residency.NewHydrator(h.DB, h.Scripts, slog.New(slog.NewTextHandler(&log, nil)), reg)
		watcher := residency.NewMaintainer(hydrator, time.Hour, nil, nil)
		broken, err := watcher.Watch(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, broken)
		require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("late", ""))[0].Outcome, "before anybody looked at the campaign")

		require.Equal(t, models.ResidencyLost, h.Residency(id))
		require.Equal(t, 1, strings.Count(log.String(), "lost_entries=87"), log.String())
		require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP dibs_stream_entries_lost_total Entries of claim streams that Redis lost when it was rolled back: a restored snapshot, a replica that lagged, data that is gone.
# TYPE dibs_stream_entries_lost_total counter
dibs_stream_entries_lost_total 87
`), "dibs_stream_entries_lost_total"))
		require.Contains(t, fmt.Sprint(h.Compare(id).Differences), "it lost 87 entries of the stream")
		require.Zero(t, watch(h), "it is told once")
		_, err = syncertest.NewMaintainer(t, h.DB, h.Scripts, time.Hour).Attend(t.Context(), true)
		require.NoError(t, err)
		require.Equal(t, models.ResidencyLost, h.Residency(id), "a stream that lost entries proves nothing")
	}
}

// A process that looks between the fence and the record of why finds the fence alone: the reason is put in its place.
func TestRolledBack_TheReasonIsToldWhoeverLooksFirst(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := rollBack(h)
	h.Claim(id, syncertest.Asks("more", 90)...) // the campaign itself is not behind any more
	require.NoError(t, h.Scripts.Fence(t.Context(), id, 1))
	require.NoError(t, h.Hydrator().Examine(t.Context(), id))
	require.Contains(t, fmt.Sprint(h.Compare(id).Differences), "it lost 87 entries of the stream")
	require.Zero(t, watch(h))
}

// The control of the test above: an intact stream that was trimmed is none that lost entries.
func TestRolledBack_ControlATrimmedStreamIsWhole(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(1000, nil)
	for range 3 {
		h.Claim(id, syncertest.Asks("u", 120)...)
		require.Zero(t, watch(h))
		h.Claim(id, syncertest.Asks("v", 120)...)
		h.Sync()
		unread, err := h.Scripts.Unread(t.Context(), 0, models.GroupSyncer)
		require.NoError(t, err)
		_, err = h.Scripts.TrimBelow(t.Context(), 0, unread.First(), 1000)
		require.NoError(t, err)
		require.Zero(t, watch(h))
	}
	require.Equal(t, models.ResidencyResident, h.Residency(id))
}

// Redis holds a campaign that was evicted since. Where the stream lost nothing, MySQL has every claim and it comes back by itself.
func TestRolledBack_AnEvictionThatIsUndone(t *testing.T) {
	t.Parallel()
	for _, tail := range []int{0, 5} {
		h := syncertest.NewStack(t)
		id := h.Create(100, nil)
		h.Claim(id, syncertest.Asks("early", 7)...)
		h.Sync()
		save(h)
		h.Claim(id, syncertest.Asks("tail", tail)...)
		h.Sync()
		require.Eventually(t, func() bool { return h.Evict(time.Millisecond) == 1 }, time.Minute, time.Millisecond)
		require.Zero(t, watch(h))
		goBack(h)
		require.Equal(t, models.ResidencyEvicted, h.Residency(id))
		require.NotEmpty(t, h.KeysOf(id), "redis undid it")

		require.Equal(t, min(tail, 1), watch(h))
		require.Equal(t, models.ResidencyLost, h.Residency(id))
		require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("late", ""))[0].Outcome)
		n, err := syncertest.NewMaintainer(t, h.DB, h.Scripts, time.Hour).Attend(t.Context(), true)
		require.NoError(t, err)
		require.Equal(t, 1-min(tail, 1), n)
	}
}

// An evicted campaign that is just being loaded has a newer load, and is left alone.
func TestRolledBack_ControlALoadUnderWayIsNoEvictionUndone(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, nil)
	require.Eventually(t, func() bool { return h.Evict(time.Millisecond) == 1 }, time.Minute, time.Millisecond)
	looks := 0
	_, err := residency.HydrateWithStep(t.Context(), h.Hydrator(), id, func(step string) {
		if step == "loaded" || step == "confirmed" {
			looks++
			require.Zero(t, watch(h))
		}
	})
	require.NoError(t, err)
	require.Equal(t, 2, looks)
	require.Equal(t, models.OutcomeClaimed, h.Claim(id, syncertest.Ask("u", ""))[0].Outcome)
}

// A replica that stopped hearing from its primary is promoted.
func TestRolledBack_AReplicaThatLagged(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, nil)
	h.Claim(id, syncertest.Asks("early", 7)...)
	replica := testenv.Redis(t, "replicaof "+strings.Replace(h.Server.Addr(), ":", " ", 1), "repl-diskless-sync-delay 0")
	rdb := replica.Client()
	require.Eventually(t, func() bool {
		info, err := rdb.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up") && rdb.XLen(t.Context(), lua.StreamKey(0)).Val() == 7
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, rdb.Do(t.Context(), "replicaof", "no", "one").Err())
	h.Claim(id, syncertest.Asks("tail", 20)...)
	h.Sync()
	require.Zero(t, watch(h))

	h.Redis = rdb
	scripts, err := lua.New(rdb, lua.Options{})
	require.NoError(t, err)
	h.Scripts = scripts
	h.Claim(id, syncertest.Asks("more", 25)...)
	require.Equal(t, 1, watch(h))
	require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("late", ""))[0].Outcome)
	require.Contains(t, fmt.Sprint(h.Compare(id).Differences), "it lost 20 entries of the stream")
}

// What a process saw may be reported while the campaign is loaded from rows that lack it. It is evidence for the load, not part of its
// past.
func TestRecover_APositionReportedDuringALoadStopsIt(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"numbered", "staged", "loaded"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			h := syncertest.NewStack(t)
			id := h.Create(5, nil)
			h.Claim(id, syncertest.Ask("u", ""))
			h.Sync()
			require.Eventually(t, func() bool { return h.Evict(time.Millisecond) == 1 }, time.Minute, time.Millisecond)

			reported := false
			_, err := residency.HydrateWithStep(t.Context(), h.Hydrator(), id, func(name string) {
				if name == step && !reported {
					reported = true
					require.NoError(t, h.Hydrator().Report(t.Context(), id, lua.Position{Epoch: h.Campaign(id).Epoch, Seq: 3}))
				}
			})
			require.True(t, reported)
			require.ErrorIs(t, err, campaigns.ErrLost, "two claims were answered that have no row")
			require.Equal(t, int64(3), h.Campaign(id).SeenSeq)
			require.False(t, h.Claim(id, syncertest.Ask("v", ""))[0].Outcome.Took())
		})
	}
}

// A loader that dies leaves a copy. The next one does not confirm it over what was reported since.
func TestRecover_APositionReportedAfterALoaderDiedStopsItsCopy(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(5, nil)
	h.Claim(id, syncertest.Ask("u", ""))
	h.Sync()
	require.Eventually(t, func() bool { return h.Evict(time.Millisecond) == 1 }, time.Minute, time.Millisecond)
	require.PanicsWithValue(t, syncertest.Died{}, func() {
		_, _ = residency.HydrateWithStep(t.Context(), h.Hydrator(), id, func(name string) {
			if name == "loaded" {
				panic(syncertest.Died{})
			}
		})
	})
	require.NoError(t, h.Hydrator().Report(t.Context(), id, lua.Position{Epoch: h.Campaign(id).Epoch, Seq: 3}))
	require.ErrorIs(t, h.Hydrate(id), campaigns.ErrLost)
	require.Equal(t, int64(3), h.Campaign(id).SeenSeq)
}
