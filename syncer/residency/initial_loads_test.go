package residency_test

import (
	"sync/atomic"
	"testing"

	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/residency"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
)

// storedMany makes campaigns of one unit each that were never loaded.
func storedMany(t *testing.T, db *gorm.DB, scripts *lua.Scripts, n int) (ids []string) {
	t.Helper()
	for range n {
		ids = append(ids, syncertest.Stored(t, db, scripts, 1))
	}
	return ids
}

func campaignOf(t *testing.T, db *gorm.DB, id string) models.Campaign {
	t.Helper()
	c, err := campaigns.Read(db.WithContext(t.Context()), id)
	require.NoError(t, err)
	return c
}

// hydrateAll hydrates campaigns at the same time.
func hydrateAll(t *testing.T, h *residency.Hydrator, ids []string) error {
	t.Helper()
	var g errgroup.Group
	for _, id := range ids {
		g.Go(func() error {
			_, err := h.Hydrate(t.Context(), id)
			return err
		})
	}
	return g.Wait()
}

// requireOneEach takes the one unit of each campaign, and no more.
func requireOneEach(t *testing.T, scripts *lua.Scripts, ids []string) {
	t.Helper()
	for _, id := range ids {
		require.Equal(t, models.OutcomeClaimed, syncertest.Claim(t, scripts, id))
		require.Equal(t, models.OutcomeSoldOut, syncertest.Claim(t, scripts, id))
	}
}

func TestFirsts_ThoseThatAreAskedForTogetherShareStatements(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		scripts := syncertest.OpenScripts(t)
		ids := storedMany(t, db, scripts, 40)
		h := syncertest.NewHydrator(t, db, scripts)
		var groups atomic.Int64
		residency.Observe(h, func(step string) {
			if step == "opened" {
				groups.Add(1)
			}
		})
		require.NoError(t, hydrateAll(t, h, ids))
		require.Less(t, groups.Load(), int64(len(ids)))
		for _, id := range ids {
			c := campaignOf(t, db, id)
			require.Equal(t, []int64{1, 1, c.Version}, []int64{c.Epoch, c.LoadAttempts, c.AppliedVersion})
		}
		requireOneEach(t, scripts, ids)
	})
}

// Each campaign of a group has its own outcome.
func TestFirsts_OneThatIsNotAsItShouldBeLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		scripts := syncertest.OpenScripts(t)
		good := storedMany(t, db, scripts, 3)
		bad := storedMany(t, db, scripts, 6)
		withClaims, open, locked, started, evicted, counted := bad[0], bad[1], bad[2], bad[3], bad[4], bad[5]
		w := syncertest.StartWriter(t, writer.Config{DB: db})
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, syncertest.ClaimsOf(withClaims, 1, 1)))
		require.NoError(t, hydrate(t, db, scripts, open))
		require.NoError(t, db.Exec("UPDATE lots SET epoch = 0, load_attempts = 0, residency = 'none' WHERE id = ?", open).Error)
		unsynced(t, open)
		require.NoError(t, db.Exec("UPDATE lots SET loader = 'x', loading_until = '2999-01-01' WHERE id = ?", locked).Error)
		hydrateUntil(t, db, scripts, started, "numbered")
		require.NoError(t, db.Exec("UPDATE lots SET residency = 'evicted' WHERE id = ?", evicted).Error)
		require.NoError(t, db.Exec("UPDATE lots SET seen_seq = 1 WHERE id = ?", counted).Error)

		h := syncertest.NewHydrator(t, db, scripts)
		all := append(append([]string{"none"}, bad...), good...)
		metas := residency.FirstsWithStep(t.Context(), h, all, func(string) {})
		for i, id := range all {
			require.Equal(t, i > len(bad), metas[i] != nil, "campaign %d, %s", i, id)
		}
		requireOneEach(t, scripts, good)

		unlock(t, db, locked)
		for id, want := range map[string]error{
			"none": models.ErrNotFound, withClaims: campaigns.ErrLost, open: campaigns.ErrLost, locked: nil, started: nil, evicted: nil,
			counted: campaigns.ErrLost,
		} {
			require.ErrorIs(t, hydrate(t, db, scripts, id), want)
		}
		requireOneEach(t, scripts, []string{locked, started, evicted})
	})
}

// Between any two steps of a group its process may die: nothing is claimed before a campaign is open, and the next process goes on.
func TestFirsts_WhereverTheGroupDiesTheNextOneGoesOn(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		scripts := syncertest.OpenScripts(t)
		for _, last := range []string{"numbered", "loaded", "confirmed", "adjusted", "opened"} {
			ids := storedMany(t, db, scripts, 4)
			require.PanicsWithValue(t, syncertest.Died{}, func() {
				residency.FirstsWithStep(t.Context(), syncertest.NewHydrator(t, db, scripts), ids, func(step string) {
					if step == last {
						panic(syncertest.Died{})
					}
				})
			}, "no step %q", last)
			isOpen := last == "adjusted" || last == "opened"
			if !isOpen {
				for _, id := range ids {
					require.False(t, syncertest.Claim(t, scripts, id).Took(), "after %q no claim is taken", last)
				}
			}
			require.NoError(t, hydrateAll(t, syncertest.NewHydrator(t, db, scripts), ids), "after %q", last)
			requireOneEach(t, scripts, ids)
			for _, id := range ids {
				c := campaignOf(t, db, id)
				require.Equal(t, c.Version, c.AppliedVersion, "after %q", last)
			}
		}
	})
}

// What happens to one campaign between two steps, another process or a Redis that loses it, is no matter of the others.
func TestFirsts_WhatHappensToOneMeanwhileIsItsOwn(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		scripts := syncertest.OpenScripts(t)
		for _, c := range []struct {
			at   string
			does func(id string)
			want error
		}{
			// The worst case, see TestHydrator_ALatecomerDoesNotBringTheFullStockBack.
			{"numbered", func(id string) {
				unlock(t, db, id)
				require.NoError(t, hydrate(t, db, scripts, id))
				require.Equal(t, models.OutcomeClaimed, syncertest.Claim(t, scripts, id))
				lose(t, id)
			}, campaigns.ErrLost},
			{"loaded", func(id string) {
				unlock(t, db, id)
				require.NoError(t, hydrate(t, db, scripts, id))
			}, nil},
			{"loaded", func(id string) { // another, which found nothing there before, loads it once more, and dies before mysql knows of that
				unsynced(t, id)
				require.NoError(t, db.Exec("UPDATE lots SET load_attempts = 2 WHERE id = ?", id).Error)
				again := campaignOf(t, db, id)
				again.Epoch, again.Version, again.Status = 2, 0, models.StatusLoading
				loaded, err := scripts.Load(t.Context(), &again)
				require.NoError(t, err)
				require.True(t, loaded)
			}, nil},
			{"loaded", func(id string) { unsynced(t, id); lose(t, id) }, campaigns.ErrLost},
			{"confirmed", func(id string) { unsynced(t, id); lose(t, id) }, campaigns.ErrLost},
		} {
			ids := storedMany(t, db, scripts, 3)
			metas := residency.FirstsWithStep(t.Context(), syncertest.NewHydrator(t, db, scripts), ids, func(step string) {
				if step == c.at {
					c.does(ids[1])
				}
			})
			require.NotNil(t, metas[0])
			require.NotNil(t, metas[2])
			requireOneEach(t, scripts, []string{ids[0], ids[2]})
			require.ErrorIs(t, hydrate(t, db, scripts, ids[1]), c.want, "at %q", c.at)
			if c.want != nil {
				require.False(t, syncertest.Claim(t, scripts, ids[1]).Took(), "at %q", c.at)
			} else {
				requireOneEach(t, scripts, ids[1:2])
			}
		}
	})
}

// A group that is held up, by a row that another transaction holds for example, does not hold up those that come later.
func TestFirsts_ASlowGroupDoesNotHoldUpTheNext(t *testing.T) {
	t.Parallel()
	db, scripts := syncertest.OpenServer(t), syncertest.OpenScripts(t)
	ids := storedMany(t, db, scripts, 2)
	h := syncertest.NewHydrator(t, db, scripts)
	reached, free := make(chan struct{}), make(chan struct{})
	var isSecond atomic.Bool
	residency.Observe(h, func(step string) {
		if step == "numbered" && !isSecond.Swap(true) {
			close(reached)
			<-free
		}
	})
	var g errgroup.Group
	g.Go(func() error { return hydrateAll(t, h, ids[:1]) })
	<-reached
	require.NoError(t, hydrateAll(t, h, ids[1:]))
	close(free)
	require.NoError(t, g.Wait())
	requireOneEach(t, scripts, ids)
}

func TestFirsts_ManyProcessesAtOnceLoadOnce(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		scripts := syncertest.OpenScripts(t)
		ids := storedMany(t, db, scripts, 10)
		var g errgroup.Group
		for range 3 {
			h := syncertest.NewHydrator(t, db, scripts)
			g.Go(func() error { return hydrateAll(t, h, ids) })
		}
		require.NoError(t, g.Wait())
		requireOneEach(t, scripts, ids)
	})
}
