package syncer_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
	"dibs/syncer"
)

// I5, I6: a campaign that was evicted comes back exactly, to the byte, with replays, limits and stock.
func TestEvictor_WhatComesBackIsWhatLeft(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.open(300, func(c *models.Campaign) { c.PerUser, c.PerUserPerDay, c.TimeZone = 3, 2, "Asia/Kathmandu" })
	reqs := asks("u", 200)
	reqs = append(reqs, ask("u-1", ""), ask("u-2", "again"))
	first := h.claim(id, reqs...)
	h.sync()
	before := h.content(id)

	require.Equal(t, 1, h.evict(time.Nanosecond*1e6))
	require.Empty(t, h.keysOf(id), "Redis holds nothing of it")
	require.Equal(t, models.ResidencyEvicted, h.residency(id))
	require.Equal(t, models.OutcomeAbsent, h.claim(id, ask("x", ""))[0].Outcome)

	require.NoError(t, h.hydrate(id))
	require.Equal(t, before, h.content(id))
	require.Equal(t, []string{"", ":keys", ":users"}, h.keysOf(id))
	replays := h.claim(id, reqs...)
	for i := range replays {
		require.Equal(t, models.OutcomeReplayed, replays[i].Outcome)
		require.Equal(t, first[i].Claim, replays[i].Claim)
	}
	require.Equal(t, []models.Outcome{models.OutcomeUserDayLimit, models.OutcomeClaimed, models.OutcomeUserDayLimit},
		outcomesOf(h.claim(id, ask("u-1", ""), ask("u-3", ""), ask("u-2", ""))))
	other := ask("somebody else", "again")
	require.Equal(t, models.OutcomeIdempotencyMismatch, h.claim(id, other)[0].Outcome)
	left := h.claim(id, asks("v", 200)...)
	taken := 0
	for _, r := range left {
		if r.Outcome == models.OutcomeClaimed {
			taken++
		}
	}
	require.Equal(t, 300-203, taken, "exactly what was left")
	h.sync()
	h.requireBooks(id, 300)
	c := h.campaign(id)
	require.Equal(t, []int64{2, 2}, []int64{c.Epoch, c.LoadAttempts})
}

func TestEvictor_LetsBeWhatIsNotIdleOrNotSynced(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.open(10, nil)
	require.Zero(t, h.evict(time.Hour), "just loaded")
	h.claim(id, ask("u", ""))
	require.Zero(t, h.evict(time.Millisecond), "MySQL lacks a claim")
	h.sync()
	require.Zero(t, h.evict(time.Hour), "just claimed from")
	require.NoError(t, h.db.Exec("UPDATE campaigns SET version = version + 1 WHERE id = ?", id).Error)
	require.Zero(t, h.evict(time.Millisecond), "a change is on its way")
	require.NoError(t, h.hydrate(id))
	require.NoError(t, h.scripts.Fence(t.Context(), id, 1))
	require.Zero(t, h.evict(time.Millisecond), "fenced")
	require.Equal(t, models.ResidencyResident, h.residency(id))
	require.NoError(t, h.hydrate(id), "and proven")
	require.Eventually(t, func() bool { return h.evict(time.Millisecond) == 1 }, 5*time.Second, 5*time.Millisecond)
}

// What begins later is kept for the crowd that comes then.
func TestEvictor_KeepsWhatIsAwaited(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	id := h.open(10, func(c *models.Campaign) { c.StartsAt = &soon })
	begun := h.open(10, func(c *models.Campaign) { c.StartsAt = &past })
	require.Eventually(t, func() bool { return h.evict(time.Millisecond) == 1 }, 5*time.Second, 5*time.Millisecond)
	require.Equal(t, models.ResidencyEvicted, h.residency(begun))
	_, err := newCampaigns(t, h.db, h.scripts).Change(t.Context(), id, models.Change{StartsAt: &past})
	require.NoError(t, err)
	require.Zero(t, h.evict(time.Hour), "it began of late")
	require.Eventually(t, func() bool { return h.evict(time.Millisecond) == 1 }, 5*time.Second, 5*time.Millisecond)
	require.Equal(t, models.ResidencyEvicted, h.residency(id))
}

// Whoever dies in an eviction leaves a mark by which the next one completes it: by a claim's hydration, or by another round.
func TestEvictor_WhereverItDiesTheNextOneCompletesIt(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, last := range []string{"gone", "recorded"} {
		for _, next := range []string{"hydration", "round", "late"} {
			name := last + ", then " + next
			id := h.open(2, nil)
			h.claim(id, ask("u", "k"))
			h.sync()
			time.Sleep(2 * time.Millisecond) //nolint:forbidigo // its idle time, by Redis' clock
			require.PanicsWithValue(t, died{}, func() {
				_, _ = syncer.EvictWithStep(t.Context(), newEvictor(t, h.db, h.scripts, time.Millisecond), func(step string) {
					if step == last {
						panic(died{})
					}
				})
			})
			require.Equal(t, []string{":evicted"}, h.keysOf(id), name)
			switch next {
			case "round":
				require.Zero(t, h.evict(time.Hour), name)
				require.Equal(t, models.ResidencyEvicted, h.residency(id), name)
				if last == "gone" {
					require.Empty(t, h.keysOf(id), name)
				}
			case "late": // Redis is put back meanwhile: the mark belongs to an earlier load
				require.NoError(t, h.rdb.Set(t.Context(), lua.KeysOf(id, 0).Evicted, "1:0", 0).Err())
			}
			require.NoError(t, h.hydrate(id), name)
			require.Equal(t, []string{"", ":keys", ":users"}, h.keysOf(id), name)
			require.Equal(t, []models.Outcome{models.OutcomeReplayed, models.OutcomeClaimed, models.OutcomeSoldOut},
				outcomesOf(h.claim(id, ask("u", "k"), ask("v", ""), ask("w", ""))), name)
			h.sync()
			h.requireBooks(id, 2)
			require.Eventually(t, func() bool { return h.evict(time.Millisecond) == 1 }, 5*time.Second, time.Millisecond, name)
		}
	}
}

// A claim that comes between the evictor's look at MySQL and Redis' letting go keeps the campaign, whatever its idle time.
func TestEvictor_RacesWithClaimsAndLosesNone(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const units = 400
	id := h.open(units, nil)
	stop, done := make(chan struct{}), make(chan error, 1)
	evictor := newEvictor(t, h.db, h.scripts, 3*time.Millisecond)
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
		r := h.claim(id, ask(fmt.Sprintf("u-%d", i), ""))[0]
		switch r.Outcome {
		case models.OutcomeClaimed:
			taken++
		case models.OutcomeAbsent:
			if err := h.hydrate(id); !errors.Is(err, lua.ErrAbsent) { // gone again already
				require.NoError(t, err)
			}
		default:
			require.Fail(t, "unexpected", "%s", r.Outcome)
		}
		if i%3 == 0 {
			h.sync()
		}
	}
	close(stop)
	require.NoError(t, <-done)
	h.sync()
	require.NoError(t, h.hydrate(id))
	require.Equal(t, models.OutcomeSoldOut, h.claim(id, ask("late", ""))[0].Outcome)
	h.requireBooks(id, units)
	require.Greater(t, h.campaign(id).Epoch, int64(3), "it was evicted again and again")
}
