package lots_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/lots"
)

// MySQL records an eviction only by its entry in the claim stream, even
// after a long idle time, or for an operator's.
func TestKeeper_AnEvictionIsNotedByItsEntry(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	h.Take(id, syncertest.Asks("u", 3)...)
	keeper := lots.NewKeeper(h.Loader(), lots.MinIdle, nil)
	for name, evict := range map[string]func() (bool, error){
		"idle": func() (bool, error) { n, err := keeper.Evict(t.Context()); return n == 1, err },
		"one":  func() (bool, error) { return keeper.EvictOne(t.Context(), id) },
	} {
		require.Eventually(t, func() bool {
			isEvicted, err := evict()
			require.NoError(t, err)
			return isEvicted
		}, time.Minute, 2*time.Millisecond, name)
		_, err := h.Scripts.State(t.Context(), id)
		require.ErrorIs(t, err, lua.ErrAbsent)
		require.Equal(t, models.ResidencyResident, h.Residency(id), "its entry is not applied yet")
		h.Sync()
		require.Equal(t, models.ResidencyEvicted, h.Residency(id))
		require.NoError(t, h.Load(id))
		require.Equal(t, models.ResidencyEvicted, h.Residency(id), "nor is that of the load")
		h.Sync()
		require.Equal(t, models.ResidencyResident, h.Residency(id))
		require.Empty(t, h.Compare(id).Differences)
	}
}

// Only Redis has the claims that a restored MySQL has yet to read, or never
// will, as the stream was trimmed past its offset.
func TestKeeper_NothingIsEvictedThatMySQLLacks(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	h.Take(id, syncertest.Asks("u", 3)...)
	dump := syncertest.DumpOf(t, h.DB)
	h.Take(id, syncertest.Asks("v", 4)...)
	require.NoError(t, dump.Restore(h.DB))
	keeper := lots.NewKeeper(h.Loader(), lots.MinIdle, nil)
	for _, state := range []event.PartitionState{event.PartitionOK, event.PartitionGap} {
		h.Exec("UPDATE streams SET state = ?", state)
		n, err := keeper.Evict(t.Context())
		require.NoError(t, err)
		require.Zero(t, n, state)
		_, err = keeper.EvictOne(t.Context(), id)
		require.ErrorIs(t, err, lots.ErrAway, state)
		now, err := h.Scripts.State(t.Context(), id)
		require.NoError(t, err)
		require.EqualValues(t, 3, now.Remaining(), state)
	}
	h.Exec("UPDATE streams SET state = ?", event.PartitionOK)
	h.Sync()
	require.Equal(t, 1, h.Evict(lots.MinIdle))
}

func TestKeeper_AStreamIsCompleteOnceItsTipIsApplied(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	keeper := h.Maintainer()
	completeAt := func() (at time.Time) {
		require.NoError(t, keeper.Complete(t.Context()))
		require.NoError(t, h.DB.Raw("SELECT complete_at FROM streams WHERE partition_no = 0").Scan(&at).Error)
		return at
	}
	first := completeAt()
	require.WithinDuration(t, time.Now(), first, time.Minute)
	h.Claim(id, syncertest.Ask("u", ""))
	h.Exec("UPDATE streams SET complete_at = '2020-01-01 00:00:00.000'")
	require.Equal(t, 2020, completeAt().Year(), "a claim is on its way")
	h.Sync()
	require.Greater(t, completeAt().Year(), 2020)
}
