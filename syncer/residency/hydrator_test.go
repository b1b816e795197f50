package residency_test

import (
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/residency"
	"dibs/syncer/writer"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

// lose takes a campaign out of Redis.
func lose(t *testing.T, id string) {
	t.Helper()
	k := lua.KeysOf(id, lua.PartitionOf(id, syncertest.Partitions))
	require.NoError(t, testenv.SharedRedis(t).Client().Del(t.Context(), k.State, k.Users, k.Keys).Err())
}

// unsynced puts an entry into a campaign's stream that no group will ever read, so that nothing lost from now on can be proven.
func unsynced(t *testing.T, id string) {
	t.Helper()
	err := testenv.SharedRedis(t).Client().XAdd(t.Context(), &redis.XAddArgs{
		Stream: lua.StreamKey(lua.PartitionOf(id, syncertest.Partitions)), Values: []string{"payload", "{}"},
	}).Err()
	require.NoError(t, err)
}

// unlock has the lock of a campaign's loader run out.
func unlock(t *testing.T, db *gorm.DB, id string) {
	t.Helper()
	require.NoError(t, db.Exec("UPDATE lots SET loader = '' WHERE id = ?", id).Error)
}

func hydrate(t *testing.T, db *gorm.DB, scripts *lua.Scripts, id string) error {
	t.Helper()
	_, err := syncertest.NewHydrator(t, db, scripts).Hydrate(t.Context(), id)
	return err
}

// hydrateUntil is a hydration by a process that dies right after a step.
func hydrateUntil(t *testing.T, db *gorm.DB, scripts *lua.Scripts, id, last string) {
	t.Helper()
	require.PanicsWithValue(t, syncertest.Died{}, func() {
		_, _ = residency.HydrateWithStep(t.Context(), syncertest.NewHydrator(t, db, scripts), id, func(step string) {
			if step == last {
				panic(syncertest.Died{})
			}
		})
	}, "no step %q", last)
}

func TestHydrator_LoadsWhatWasNeverLoaded(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		scripts := syncertest.OpenScripts(t)
		id := syncertest.Stored(t, db, scripts, 2)
		require.Equal(t, models.OutcomeAbsent, syncertest.Claim(t, scripts, id))
		meta, err := syncertest.NewHydrator(t, db, scripts).Hydrate(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, id, meta.ID)
		require.Equal(t, lua.PartitionOf(id, syncertest.Partitions), meta.Partition)
		require.Equal(t, models.OutcomeClaimed, syncertest.Claim(t, scripts, id))
		require.NoError(t, hydrate(t, db, scripts, id), "once more changes nothing")
		require.Equal(t, models.OutcomeClaimed, syncertest.Claim(t, scripts, id))
		require.Equal(t, models.OutcomeSoldOut, syncertest.Claim(t, scripts, id))

		state, err := scripts.State(t.Context(), id)
		require.NoError(t, err)
		c, err := syncertest.NewCampaigns(t, db, scripts).Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []int64{1, 1, 1, 1}, []int64{state.Epoch, state.Version, c.Epoch, c.AppliedVersion})
	})
}

func TestHydrator_KnowsNoCampaignThatMySQLDoesNot(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, hydrate(t, syncertest.OpenServer(t), syncertest.OpenScripts(t), testenv.UniqueID(t, "none")), models.ErrNotFound)
}

func TestHydrator_WhereverItDiesTheNextOneGoesOn(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		scripts := syncertest.OpenScripts(t)
		for _, last := range []string{"numbered", "loaded", "confirmed", "opened"} {
			id := syncertest.Stored(t, db, scripts, 1)
			hydrateUntil(t, db, scripts, id, last)
			if last != "opened" {
				require.False(t, syncertest.Claim(t, scripts, id).Took(), "after %q no claim is taken", last)
			}
			require.NoError(t, hydrate(t, db, scripts, id), "after %q", last)
			require.Equal(t, models.OutcomeClaimed, syncertest.Claim(t, scripts, id))
			require.Equal(t, models.OutcomeSoldOut, syncertest.Claim(t, scripts, id))
		}
	})
}

func TestSweeper_CompletesAFirstLoadThatWasBegun(t *testing.T) {
	t.Parallel()
	db, scripts := syncertest.OpenServer(t), syncertest.OpenScripts(t)
	for _, last := range []string{"numbered", "loaded", "confirmed"} {
		id := syncertest.Stored(t, db, scripts, 1)
		hydrateUntil(t, db, scripts, id, last)
		n, err := syncertest.NewMaintainer(t, db, scripts, time.Hour).Attend(t.Context(), true)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, models.OutcomeClaimed, syncertest.Claim(t, scripts, id))
	}
}

// Before step 3 nothing can have been claimed, so a copy that Redis lost is loaded again; after it, it is lost.
func TestHydrator_LoadsAgainOnlyWhileNothingCanHaveBeenClaimed(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		scripts := syncertest.OpenScripts(t)
		for last, want := range map[string]error{"numbered": nil, "loaded": nil, "confirmed": campaigns.ErrLost, "opened": campaigns.ErrLost} {
			id := syncertest.Stored(t, db, scripts, 1)
			hydrateUntil(t, db, scripts, id, last)
			unsynced(t, id)
			lose(t, id)
			require.ErrorIs(t, hydrate(t, db, scripts, id), want, "after %q", last)
		}
	})
}

// The worst case: a process gets its number, sleeps, and wakes after the campaign was loaded by another, claimed from, and
// lost with the claims in flight. Its late load must never be opened, by anything.
func TestHydrator_ALatecomerDoesNotBringTheFullStockBack(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		scripts := syncertest.OpenScripts(t)
		id := syncertest.Stored(t, db, scripts, 1)
		_, err := residency.HydrateWithStep(t.Context(), syncertest.NewHydrator(t, db, scripts), id, func(step string) {
			if step != "numbered" {
				return
			}
			unlock(t, db, id) // it slept for longer than its time lasts
			require.NoError(t, hydrate(t, db, scripts, id))
			require.Equal(t, models.OutcomeClaimed, syncertest.Claim(t, scripts, id))
			lose(t, id)
		})
		require.ErrorIs(t, err, campaigns.ErrLost)
		_, err = syncertest.NewCampaigns(t, db, scripts).Change(t.Context(), id, models.Change{Total: new(int64(2))})
		require.NoError(t, err, "the definition may change")
		_, err = syncertest.NewMaintainer(t, db, scripts, time.Hour).Attend(t.Context(), true)
		require.NoError(t, err)
		require.ErrorIs(t, hydrate(t, db, scripts, id), campaigns.ErrLost)
		require.False(t, syncertest.Claim(t, scripts, id).Took(), "the one unit is taken already")
	})
}

func TestHydrator_RefusesWhatWasLoadedBefore(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		scripts := syncertest.OpenScripts(t)
		withClaims := syncertest.Stored(t, db, scripts, 100)
		w := syncertest.StartWriter(t, writer.Config{DB: db})
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, syncertest.ClaimsOf(withClaims, 1, 1)))
		require.ErrorIs(t, hydrate(t, db, scripts, withClaims), campaigns.ErrLost, "claims, and no epoch")

		_, _, gone := syncertest.Live(t, db, 1)
		unsynced(t, gone)
		lose(t, gone)
		require.ErrorIs(t, hydrate(t, db, scripts, gone), campaigns.ErrLost, "an epoch, and not there")

		_, _, other := syncertest.Live(t, db, 1)
		require.NoError(t, db.Exec("UPDATE lots SET epoch = 2 WHERE id = ?", other).Error)
		unsynced(t, other)
		require.ErrorIs(t, hydrate(t, db, scripts, other), campaigns.ErrLost, "another epoch")

		_, _, foreign := syncertest.Live(t, db, 1)
		require.NoError(t, db.Exec("UPDATE lots SET epoch = 0 WHERE id = ?", foreign).Error)
		unsynced(t, foreign)
		require.ErrorIs(t, hydrate(t, db, scripts, foreign), campaigns.ErrLost, "open in redis, never loaded by the books")
	})
}

func TestHydrator_ManyProcessesAtOnceLoadOnce(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		scripts := syncertest.OpenScripts(t)
		id := syncertest.Stored(t, db, scripts, 3)
		var g errgroup.Group
		for range 4 {
			h := syncertest.NewHydrator(t, db, scripts)
			for range 4 {
				g.Go(func() error {
					_, err := h.Hydrate(t.Context(), id)
					return err
				})
			}
		}
		require.NoError(t, g.Wait())
		for range 3 {
			require.Equal(t, models.OutcomeClaimed, syncertest.Claim(t, scripts, id))
		}
		require.Equal(t, models.OutcomeSoldOut, syncertest.Claim(t, scripts, id))
	})
}

// A change that comes at any step of a first load is in force after it.
func TestHydrator_MissesNoChangeThatComesMeanwhile(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		scripts := syncertest.OpenScripts(t)
		campaigns := syncertest.NewCampaigns(t, db, scripts)
		for _, at := range []string{"numbered", "loaded", "confirmed"} {
			id := syncertest.Stored(t, db, scripts, 1)
			_, err := residency.HydrateWithStep(t.Context(), syncertest.NewHydrator(t, db, scripts), id, func(step string) {
				if step == at {
					_, err := campaigns.Change(t.Context(), id, models.Change{Total: new(int64(50))})
					require.NoError(t, err)
				}
			})
			require.NoError(t, err)
			state, err := scripts.State(t.Context(), id)
			require.NoError(t, err)
			c, err := campaigns.Get(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, []int64{50, c.Version, c.Version, 50}, []int64{state.Total, state.Version, c.AppliedVersion, c.Remaining}, "at %q", at)
			require.Equal(t, models.StatusOpen, state.Status)
		}
	})
}
