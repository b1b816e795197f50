package residency_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/reconcile"
	"dibs/syncer/residency"

	"github.com/stretchr/testify/require"
)

// I5, I6: a campaign that was evicted comes back exactly, to the byte, with replays, limits and stock.
func TestEvict_WhatComesBackIsWhatLeft(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(300, func(c *models.Campaign) { c.PerUser, c.PerUserPerDay, c.TimeZone = 3, 2, "Asia/Kathmandu" })
	reqs := syncertest.Asks("u", 200)
	reqs = append(reqs, syncertest.Ask("u-1", ""), syncertest.Ask("u-2", "again"))
	first := h.Claim(id, reqs...)
	h.Sync()
	before := h.Content(id)

	require.Equal(t, 1, h.Evict(time.Nanosecond*1e6))
	require.Equal(t, []string{":evicted"}, h.KeysOf(id), "Redis holds a tombstone of it")
	require.Equal(t, models.ResidencyEvicted, h.Residency(id))
	require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("x", ""))[0].Outcome)

	require.NoError(t, h.Hydrate(id))
	require.Equal(t, before, h.Content(id))
	require.Equal(t, []string{"", ":keys", ":users"}, h.KeysOf(id))
	replays := h.Claim(id, reqs...)
	for i := range replays {
		require.Equal(t, models.OutcomeReplayed, replays[i].Outcome)
		require.Equal(t, first[i].Claim, replays[i].Claim)
	}
	require.Equal(t, []models.Outcome{models.OutcomeUserDayLimit, models.OutcomeClaimed, models.OutcomeUserDayLimit},
		syncertest.OutcomesOf(h.Claim(id, syncertest.Ask("u-1", ""), syncertest.Ask("u-3", ""), syncertest.Ask("u-2", ""))))
	other := syncertest.Ask("u-2", "again")
	other.Quantity = 2
	require.Equal(t, models.OutcomeIdempotencyMismatch, h.Claim(id, other)[0].Outcome)
	left := h.Claim(id, syncertest.Asks("v", 200)...)
	taken := 0
	for _, r := range left {
		if r.Outcome == models.OutcomeClaimed {
			taken++
		}
	}
	require.Equal(t, 300-203, taken, "exactly what was left")
	h.Sync()
	h.RequireBooks(id, 300)
	c := h.Campaign(id)
	require.Equal(t, []int64{2, 2}, []int64{c.Epoch, c.LoadAttempts})
}

func TestEvict_LetsBeWhatIsNotIdleOrNotSynced(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	require.Zero(t, h.Evict(time.Hour), "just loaded")
	h.Claim(id, syncertest.Ask("u", ""))
	require.Zero(t, h.Evict(time.Millisecond), "MySQL lacks a claim")
	h.Sync()
	require.Zero(t, h.Evict(time.Hour), "just claimed from")
	require.NoError(t, h.DB.Exec("UPDATE definitions SET version = version + 1 WHERE campaign_id = ?", id).Error)
	require.Zero(t, h.Evict(time.Millisecond), "a change is on its way")
	require.NoError(t, h.Hydrate(id))
	require.NoError(t, h.Scripts.Fence(t.Context(), id, 1))
	require.Zero(t, h.Evict(time.Millisecond), "fenced")
	require.Equal(t, models.ResidencyResident, h.Residency(id))
	require.NoError(t, h.Hydrate(id), "and proven")
	require.Eventually(t, func() bool { return h.Evict(time.Millisecond) == 1 }, time.Minute, 5*time.Millisecond)
}

// What begins later is kept for the crowd that comes then.
func TestEvict_KeepsWhatIsAwaited(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	id := h.Create(10, func(c *models.Campaign) { c.StartsAt = &soon })
	started := h.Create(10, func(c *models.Campaign) { c.StartsAt = &past })
	require.Eventually(t, func() bool { return h.Evict(time.Millisecond) == 1 }, time.Minute, 5*time.Millisecond)
	require.Equal(t, models.ResidencyEvicted, h.Residency(started))
	_, err := syncertest.NewCampaigns(t, h.DB, h.Scripts).Change(t.Context(), id, models.Change{StartsAt: &past})
	require.NoError(t, err)
	require.Zero(t, h.Evict(time.Hour), "it began of late")
	require.Eventually(t, func() bool { return h.Evict(time.Millisecond) == 1 }, time.Minute, 5*time.Millisecond)
	require.Equal(t, models.ResidencyEvicted, h.Residency(id))
}

// Whoever dies in an eviction leaves a tombstone by which the next one completes it: by a claim's hydration, or by another round.
func TestEvict_WhereverItDiesTheNextOneCompletesIt(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	for _, last := range []string{"gone", "recorded"} {
		for _, next := range []string{"hydration", "round", "late"} {
			name := last + ", then " + next
			id := h.Create(2, nil)
			h.Claim(id, syncertest.Ask("u", "k"))
			h.Sync()
			time.Sleep(2 * time.Millisecond) //nolint:forbidigo // its idle time, by Redis' clock
			require.PanicsWithValue(t, syncertest.Died{}, func() {
				_, _ = residency.EvictWithStep(t.Context(), syncertest.NewMaintainer(t, h.DB, h.Scripts, time.Millisecond), func(step string) {
					if step == last {
						panic(syncertest.Died{})
					}
				})
			})
			require.Equal(t, []string{":evicted"}, h.KeysOf(id), name)
			switch next {
			case "round":
				require.Zero(t, h.Evict(time.Hour), name)
				require.Equal(t, models.ResidencyEvicted, h.Residency(id), name)
			case "late": // Redis is restored in the meantime: the mark belongs to an earlier load
				require.NoError(t, h.Redis.Set(t.Context(), lua.KeysOf(id, 0).Evicted, "1:0:0", 0).Err())
			}
			require.NoError(t, h.Hydrate(id), name)
			require.Equal(t, []string{"", ":keys", ":users"}, h.KeysOf(id), name)
			require.Equal(t, []models.Outcome{models.OutcomeReplayed, models.OutcomeClaimed, models.OutcomeSoldOut},
				syncertest.OutcomesOf(h.Claim(id, syncertest.Ask("u", "k"), syncertest.Ask("v", ""), syncertest.Ask("w", ""))), name)
			h.Sync()
			h.RequireBooks(id, 2)
			require.Eventually(t, func() bool { return h.Evict(time.Millisecond) == 1 }, time.Minute, time.Millisecond, name)
		}
	}
}

// A claim that comes between the evictor's look at MySQL and Redis' letting go keeps the campaign, whatever its idle time.
func TestEvict_RacesWithClaimsAndLosesNone(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	const units = 200
	id := h.Create(units, nil)
	stop, done := make(chan struct{}), make(chan error, 1)
	evictor := syncertest.NewMaintainer(t, h.DB, h.Scripts, 3*time.Millisecond)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if _, err := evictor.Evict(t.Context()); err != nil {
				done <- err
				return
			}
		}
	}()
	taken := 0
	for i := 0; taken < units; i++ {
		r := h.Claim(id, syncertest.Ask(fmt.Sprintf("u-%d", i), ""))[0]
		switch r.Outcome {
		case models.OutcomeClaimed:
			taken++
		case models.OutcomeAbsent:
			if err := h.Hydrate(id); !errors.Is(err, lua.ErrAbsent) { // gone again already
				require.NoError(t, err)
			}
		default:
			require.Fail(t, "unexpected", "%s", r.Outcome)
		}
		if i%3 == 0 {
			h.Sync()
		}
	}
	close(stop)
	require.NoError(t, <-done)
	h.Sync()
	require.NoError(t, h.Hydrate(id))
	require.Equal(t, models.OutcomeSoldOut, h.Claim(id, syncertest.Ask("late", ""))[0].Outcome)
	h.RequireBooks(id, units)
	require.Greater(t, h.Campaign(id).Epoch, int64(3), "it was evicted again and again")
}

// What Redis evicted was answered. A MySQL that has less at the next load was restored to an earlier time: its rows prove nothing, and
// claims that no evidence restores are given up only by who says so.
func TestEvict_AMySQLRestoredBehindAnEvictionIsSeen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		restore string
		loads   bool
	}{
		"claims":         {"synced_seq = 3, claimed = 3", false},
		"the load":       {"synced_seq = 0, claimed = 0, epoch = 0, load_attempts = 0, residency = 'none'", false},
		"nothing at all": {"updated_at = updated_at", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := syncertest.NewStack(t)
			id := h.Create(10, nil)
			h.Claim(id, syncertest.Asks("u", 7)...)
			h.Sync()
			require.Eventually(t, func() bool { return h.Evict(time.Millisecond) == 1 }, time.Minute, time.Millisecond)
			require.Equal(t, []string{":evicted"}, h.KeysOf(id))
			h.Exec("UPDATE lots SET "+c.restore+" WHERE id = ?", id)
			if c.loads {
				require.NoError(t, h.Hydrate(id))
				require.Equal(t, int64(3), h.Campaign(id).Remaining)
				return
			}
			h.Exec("DELETE FROM claims WHERE campaign_id = ? AND seq > (SELECT synced_seq FROM lots WHERE id = ?)", id, id)
			require.ErrorIs(t, h.Hydrate(id), campaigns.ErrLost)
			require.ErrorIs(t, h.Hydrate(id), campaigns.ErrLost, "and again")
			require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("late", ""))[0].Outcome)
			require.Contains(t, h.Campaign(id).ResidencyReason, "mysql was rolled back: redis evicted load 1 with 7 claims")
			require.Equal(t, int64(7), h.Campaign(id).SeenSeq)
			if name == "the load" { // the stream has the events still
				require.Empty(t, h.Repair(id, reconcile.RepairHow{}).Left.Differences)
				require.Equal(t, int64(3), h.Campaign(id).Remaining)
				return
			}
			require.NoError(t, h.Redis.XTrimMaxLen(t.Context(), lua.StreamKey(0), 0).Err())
			require.Contains(t, fmt.Sprint(h.Repair(id, reconcile.RepairHow{}).Left.Differences), "have no row, and nothing is left of them")
			require.Equal(t, models.ResidencyLost, h.Residency(id))
			require.Empty(t, h.Repair(id, reconcile.RepairHow{GiveUpClaims: true}).Left.Differences)
			require.Equal(t, models.OutcomeClaimed, h.Claim(id, syncertest.Ask("late", ""))[0].Outcome)
		})
	}
}

// An evictor that slept through the next load must not record its eviction over it.
func TestEvict_ALateRecordLeavesANewerLoadResident(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(2, nil)
	time.Sleep(2 * time.Millisecond) //nolint:forbidigo // its idle time, by Redis' clock
	_, err := residency.EvictWithStep(t.Context(), syncertest.NewMaintainer(t, h.DB, h.Scripts, time.Millisecond), func(step string) {
		if step == "gone" {
			require.NoError(t, h.Hydrate(id))
		}
	})
	require.NoError(t, err)
	require.Equal(t, models.ResidencyResident, h.Residency(id))
	require.Equal(t, models.OutcomeClaimed, h.Claim(id, syncertest.Ask("u", ""))[0].Outcome)
	h.Sync()
	h.RequireBooks(id, 1)
}

// A pass asks Redis about many lots together. One that fails does not stop the others, and if it dies the next pass completes it.
func TestEvict_APassHasFewRoundTrips(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	var ids []string
	for range residency.EvictAtOnce + 2 {
		ids = append(ids, h.Create(10, nil))
		require.NoError(t, h.Hydrate(ids[len(ids)-1]))
	}
	slices.Sort(ids)
	damaged := ids[1]
	state := lua.KeysOf(damaged, 0).State
	require.NoError(t, h.Redis.Rename(t.Context(), state, state+":aside").Err())
	require.NoError(t, h.Redis.Set(t.Context(), state, "no hash", 0).Err())

	var trips atomic.Int64
	scripts := counted(h, &trips)
	n, err := syncertest.NewMaintainer(t, h.DB, scripts, time.Hour).Evict(t.Context())
	require.ErrorIs(t, err, lua.ErrDamaged)
	require.Zero(t, n)
	require.Equal(t, int64(2), trips.Load())

	time.Sleep(2 * time.Millisecond) //nolint:forbidigo // its idle time, by Redis' clock
	require.PanicsWithValue(t, syncertest.Died{}, func() {
		_, _ = residency.EvictWithStep(t.Context(), syncertest.NewMaintainer(t, h.DB, h.Scripts, time.Millisecond), func(string) {
			panic(syncertest.Died{})
		})
	})
	_, err = syncertest.NewMaintainer(t, h.DB, h.Scripts, time.Millisecond).Evict(t.Context())
	require.ErrorIs(t, err, lua.ErrDamaged)
	for _, id := range ids {
		want := models.ResidencyEvicted
		if id == damaged {
			want = models.ResidencyResident
		}
		require.Equal(t, want, h.Residency(id), id)
	}
}

func TestEvict_LooksAtCampaignsInTurn(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	var ids []string
	for range 5 {
		ids = append(ids, h.Create(10, nil))
		require.NoError(t, h.Hydrate(ids[len(ids)-1]))
	}
	h.Exec("UPDATE lots SET applied_version = 0 WHERE id = ?", slices.Min(ids)) // it may not be evicted, and stands first
	evictor := syncertest.NewMaintainer(t, h.DB, h.Scripts, time.Hour)
	evictor.LookAt(2)
	for range 3 { // a lap in which no one has been idle for so long
		n, err := evictor.Evict(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
	}
	evictor = syncertest.NewMaintainer(t, h.DB, h.Scripts, time.Millisecond)
	evictor.LookAt(2)
	evicted := 0
	require.Eventually(t, func() bool {
		n, err := evictor.Evict(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, n, 2)
		evicted += n
		return evicted == 4
	}, time.Minute, time.Millisecond)
}
