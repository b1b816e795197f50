package syncer_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/models"
	"dibs/syncer"
)

// requireNoMore checks that the units of a parked claim are nobody else's, nor its user's limit free again.
func (h *house) requireNoMore(id, when string) {
	h.t.Helper()
	require.Equal(h.t, []models.Outcome{models.OutcomeSoldOut}, outcomesOf(h.claim(id, ask("late", ""))), when)
	state, err := h.scripts.State(h.t.Context(), id)
	require.NoError(h.t, err)
	require.Equal(h.t, []int64{10, 10}, []int64{state.Taken, state.Seq}, when)
	record, err := h.rdb.HGet(h.t.Context(), h.keys(id).Users, "u-3").Result()
	require.NoError(h.t, err)
	require.True(h.t, strings.HasPrefix(record, "0:1;"), "%s: %s", when, record)
}

func TestParked_AClaimThatCannotBeWrittenKeepsItsUnits(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.refusing()

	books, err := newCampaigns(t, h.db, h.scripts).Books(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []int64{9, 9, 1, 1}, []int64{books.Claimed, books.SyncedSeq, books.ParkedClaims, books.ParkedUnits})
	found := h.compare(id)
	require.Len(t, found.Differences, 1)
	require.Contains(t, found.Differences[0], "units of user u-3) is parked: ")
	require.Equal(t, []int64{0, 0}, []int64{*found.Backlog, *found.Drift}, "it is known, and no lag")

	done := h.repair(id, syncer.RepairHow{})
	require.Empty(t, done.Steps, "nothing to put right but what nobody can")
	h.requireNoMore(id, "after a repair that found nothing else")

	h.hset(h.keys(id).State, "taken", "5")
	done = h.repair(id, syncer.RepairHow{})
	require.Len(t, done.Steps, 1)
	require.Len(t, done.Left.Differences, 1, done.Left.Differences)
	h.requireNoMore(id, "after a rebuild by a repair")

	h.lose(id, stateOnly)
	require.NoError(t, h.hydrate(id), "what is parked is evidence: the rows and it are all there was")
	h.requireNoMore(id, "after a loss")
	require.Len(t, h.compare(id).Differences, 1)

	h.accept()
	done = h.repair(id, syncer.RepairHow{})
	require.Equal(t, []string{syncer.RepairParked}, whats(done.Steps))
	require.Empty(t, done.Left.Differences)
	require.Zero(t, h.parkedRows(id, "1 = 1"))
	h.requireBooks(id, 10)
	h.requireNoMore(id, "at the end")
}

func TestParked_IsGivenUpOnlyExplicitlyAndThenForEver(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.refusing()
	done := h.repair(id, syncer.RepairHow{DiscardParked: true})
	require.Equal(t, []string{syncer.RepairParked, syncer.RepairRedis}, whats(done.Steps))
	require.Contains(t, done.Steps[0].ValueAfter, "1 units are free")
	require.Empty(t, done.Left.Differences)
	require.Equal(t, 1, h.parkedRows(id, "discarded_at IS NOT NULL AND LENGTH(payload) > 0"), "kept for people")
	require.Equal(t, []models.Outcome{models.OutcomeClaimed}, outcomesOf(h.claim(id, ask("late", ""))))
	h.sync()

	h.accept()
	require.Empty(t, h.repair(id, syncer.RepairHow{}).Steps, "its event is in the stream still, and its unit is another's")
	h.requireBooks(id, 10)
}

func TestParked_WhoseRowCameAfterAllIsTakenOffTheList(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.refusing()
	h.accept()
	h.exec("CREATE TABLE kept AS SELECT * FROM parked_events")
	h.repair(id, syncer.RepairHow{})
	h.exec("INSERT INTO parked_events SELECT * FROM kept") // as if the repair had died between its two steps
	require.Empty(t, h.compare(id).Differences)
	require.Equal(t, []string{syncer.RepairParked}, whats(h.repair(id, syncer.RepairHow{DiscardParked: true}).Steps))
	require.Zero(t, h.parkedRows(id, "1 = 1"))
	h.requireBooks(id, 10)
}

func TestParked_WhosePlaceIsTakenHoldsARebuildUp(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.refusing()
	h.exec("UPDATE claims SET seq = (SELECT JSON_VALUE(CONVERT(payload USING utf8mb4), '$.seq') FROM parked_events) WHERE seq = 10")
	h.exec("UPDATE campaigns SET synced_seq = 9 WHERE id = ?", id)
	h.hset(h.keys(id).State, "taken", "5")
	_, err := h.reconciler(nil).Repair(t.Context(), id, syncer.RepairHow{})
	require.ErrorIs(t, err, syncer.ErrParked)
	require.ErrorContains(t, err, "of user u-3")
	state, err := h.scripts.State(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, int64(5), state.Taken, "untouched")
}

// A repair while the consumers are behind stops the campaign, says so, and does not keep it stopped.
func TestRepair_WhileClaimsAreOnTheirWaySaysWhatHappensNext(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.open(100, nil)
	h.claim(id, asks("u", 3)...)
	h.sync()
	h.hset(h.keys(id).State, "taken", "1")
	h.claim(id, asks("late", 2)...)
	_, err := h.hydrator().Rebuild(t.Context(), id, true)
	require.ErrorIs(t, err, syncer.ErrUnsynced)
	require.ErrorContains(t, err, "takes no claims now: when the consumers have caught up it comes back by itself")
	h.sync()
	n, err := newSweeper(t, h.db, h.scripts).Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	h.requireBooks(id, 5)
}
