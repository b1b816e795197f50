package syncer_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"dibs/lua"
	"dibs/models"
	"dibs/syncer"
)

// I9: what Redis lost is refused, never guessed; when the stream proves that MySQL has it all, claims go on by themselves.
func TestLost_AKeyThatVanishedComesBackOnceItsClaimsAreInMySQL(t *testing.T) {
	t.Parallel()
	for name, which := range map[string]func(k lua.CampaignKeys) []string{
		"state": stateOnly, "all": wholeCampaign,
		"users": func(k lua.CampaignKeys) []string { return []string{k.Users} },
		"keys":  func(k lua.CampaignKeys) []string { return []string{k.Keys} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			id := h.open(5, nil)
			h.claim(id, ask("u", "k"), ask("v", ""))
			h.sync()
			h.claim(id, ask("w", ""))
			h.lose(id, which)

			require.ErrorIs(t, h.hydrate(id), syncer.ErrUnsynced, "a claim is in the stream only")
			require.Equal(t, models.ResidencyLost, h.residency(id))
			require.NotEmpty(t, h.campaign(id).ResidencyReason)
			require.False(t, h.claim(id, ask("x", ""))[0].Outcome.Took())
			require.Equal(t, int64(1), h.lostCount())

			h.sync()
			n, err := newSweeper(t, h.db, h.scripts).Sweep(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n, "proven, and back by itself")
			require.Equal(t, []models.Outcome{models.OutcomeReplayed, models.OutcomeClaimed, models.OutcomeClaimed, models.OutcomeSoldOut},
				outcomesOf(h.claim(id, ask("u", "k"), ask("x", ""), ask("y", ""), ask("z", ""))))
			h.sync()
			h.requireBooks(id, 5)
			require.Zero(t, h.lostCount())
		})
	}
}

func (h *house) lostCount() (n int64) {
	h.t.Helper()
	require.NoError(h.t, h.db.Raw("SELECT COUNT(*) FROM campaigns WHERE residency = 'lost'").Row().Scan(&n))
	return n
}

// An empty Redis proves nothing about what it held; what it did not hold loads as ever.
func TestLost_AfterAFlushOnlyWhatWasNotThereLoads(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	evicted := h.open(3, nil)
	h.claim(evicted, ask("u", "k"))
	h.sync()
	require.Eventually(t, func() bool { return h.evict(time.Millisecond) == 1 }, 5*time.Second, time.Millisecond)
	never := stored(t, h.db, h.scripts, 2)
	resident := h.open(4, nil)
	h.claim(resident, ask("u", "k"))
	h.sync()
	h.claim(resident, ask("v", ""), ask("w", ""))         // nobody will ever know of these
	require.NoError(t, h.rdb.FlushAll(t.Context()).Err()) //nolint:forbidigo // its own Redis, and the fault itself
	h.group()

	require.NoError(t, h.hydrate(never))
	require.NoError(t, h.hydrate(evicted))
	require.Equal(t, models.OutcomeReplayed, h.claim(evicted, ask("u", "k"))[0].Outcome)
	require.ErrorIs(t, h.hydrate(resident), syncer.ErrLost)
	require.False(t, h.claim(resident, ask("x", ""))[0].Outcome.Took())
	h.sync()
	_, err := newSweeper(t, h.db, h.scripts).Sweep(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, h.hydrate(resident), syncer.ErrLost, "time proves nothing")
	_, err = h.hydrator().Rebuild(t.Context(), resident, false)
	require.ErrorIs(t, err, syncer.ErrLost)

	_, err = h.hydrator().Recover(t.Context(), resident, lua.Position{Epoch: 1, Seq: 3}) // by an API process that saw them
	require.ErrorIs(t, err, syncer.ErrLost)
	report, err := h.hydrator().Rebuild(t.Context(), resident, true)
	require.NoError(t, err)
	require.Equal(t, []int64{2, 1, 1, 2}, []int64{report.Epoch, report.Claims, report.Units, report.LostClaims})
	require.NotEmpty(t, report.Reason)
	require.NoError(t, h.hydrate(resident))
	replies := h.claim(resident, ask("u", "k"), ask("x", ""))
	require.Equal(t, []models.Outcome{models.OutcomeReplayed, models.OutcomeClaimed}, outcomesOf(replies))
	require.Equal(t, int64(4), replies[1].Claim.Seq, "places that somebody was told of are not given again")
	h.sync()
	c := h.campaign(resident)
	require.Equal(t, []int64{4, 2, 2, 2}, []int64{c.SyncedSeq, c.LostClaims, c.Claimed, c.Remaining})
	require.Eventually(t, func() bool { return h.evict(time.Millisecond) > 0 }, 5*time.Second, time.Millisecond, "whole again")
	require.NoError(t, h.hydrate(resident))
}

// Not one claim reached MySQL, and an API process saw some: their places are given up, and the stock is sold to others.
func TestLost_WhenEveryClaimIsLostTheStockIsSoldAnew(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.open(3, func(c *models.Campaign) { c.PerUser = 1 })
	_, now := h.claimAfter(id, lua.Position{}, asks("gone", 2)...)
	require.NoError(t, h.rdb.FlushAll(t.Context()).Err()) //nolint:forbidigo // its own Redis, and the fault itself
	h.group()
	_, err := h.hydrator().Recover(t.Context(), id, now.Position)
	require.ErrorIs(t, err, syncer.ErrLost)
	done, err := h.reconciler(nil).Repair(t.Context(), id, syncer.RepairHow{})
	require.NoError(t, err)
	require.Empty(t, done.Left.Differences)
	require.Equal(t, int64(2), h.campaign(id).LostClaims)
	replies := h.claim(id, asks("new", 4)...)
	require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeClaimed, models.OutcomeClaimed, models.OutcomeSoldOut}, outcomesOf(replies))
	require.Equal(t, int64(3), replies[0].Claim.Seq, "behind the places that are given up")
	h.sync()
	h.requireBooks(id, 3)
	require.Empty(t, h.compare(id).Differences)
}

// A pause stops the claims, so nothing else tells of a Redis that forgot it: neither the stream nor the count of claims went back.
func TestLost_ARedisThatForgotAChangeIsToldAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.open(100, nil)
	h.claim(id, asks("early", 3)...)
	h.sync()
	_, err := syncer.NewMarker(h.db, h.scripts, quiet()).Mark(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.rdb.Save(t.Context()).Err())
	paused, total := models.StatusPaused, int64(5)
	_, err = newCampaigns(t, h.db, h.scripts).Change(t.Context(), id, models.Change{Status: &paused, Total: &total})
	require.NoError(t, err)
	require.Equal(t, models.OutcomePaused, h.claim(id, ask("x", ""))[0].Outcome)
	h.server.Kill()
	h.server.Start()
	state, err := h.scripts.State(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, models.StatusOpen, state.Status, "it forgot")

	require.Contains(t, fmt.Sprint(h.compare(id).Differences), "redis went back: it works by definition 1,")
	_, err = h.reconciler(nil).Reconcile(t.Context())
	require.NoError(t, err)
	require.Empty(t, h.compare(id).Differences)
	require.Equal(t, models.OutcomePaused, h.claim(id, ask("x", ""))[0].Outcome)
	state, err = h.scripts.State(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []int64{5, 3, 3}, []int64{state.Total, state.Taken, state.Seq})
}

// Redis is put back to an older snapshot while the stream goes back with it: nobody can tell what it held meanwhile.
func TestLost_ARedisThatWentBackIsFencedAndRepaired(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id, quiet1 := h.open(10, nil), h.open(10, nil)
	h.claim(id, ask("a", "a"))
	h.sync()
	marker := syncer.NewMarker(h.db, h.scripts, quiet())
	broken, err := marker.Mark(t.Context())
	require.NoError(t, err)
	require.Zero(t, broken)
	require.NoError(t, h.rdb.Save(t.Context()).Err())
	_, now := h.claimAfter(id, lua.Position{}, ask("b", "b"), ask("c", "c"))
	h.sync() // b and c have their rows
	h.claim(id, ask("d", ""))
	_, err = marker.Mark(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.rdb.ConfigSet(t.Context(), "save", "").Err())
	h.server.Kill()
	h.server.Start()

	require.Equal(t, lua.Position{Epoch: 1, Seq: 3}, now.Position)
	before := h.server.Dump(t.Context())
	replies, held := h.claimAfter(id, now.Position, ask("e", ""), ask("a", "a"))
	require.Equal(t, []models.Outcome{models.OutcomeRolledBack, models.OutcomeRolledBack}, outcomesOf(replies))
	require.Equal(t, lua.Position{Epoch: 1, Seq: 1}, held.Position)
	require.Equal(t, before, h.server.Dump(t.Context()), "nothing was changed")

	_, err = h.hydrator().Recover(t.Context(), id, now.Position)
	require.ErrorIs(t, err, syncer.ErrLost)
	require.Equal(t, models.OutcomeAbsent, h.claim(id, ask("e", ""))[0].Outcome, "fenced for those, too, who saw nothing")
	_, err = newSweeper(t, h.db, h.scripts).Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, models.ResidencyLost, h.residency(quiet1), "it may have had claims as well")

	for _, one := range []string{id, quiet1} {
		_, err = h.hydrator().Rebuild(t.Context(), one, true)
		require.NoError(t, err)
		require.NoError(t, h.hydrate(one))
	}
	require.Equal(t, []models.Outcome{models.OutcomeReplayed, models.OutcomeReplayed, models.OutcomeReplayed},
		outcomesOf(h.claim(id, ask("a", "a"), ask("b", "b"), ask("c", "c"))))
	fresh, _ := h.claimAfter(id, now.Position, asks("n", 20)...)
	require.Equal(t, models.OutcomeClaimed, fresh[0].Outcome, "a newer load than was seen is no loss")
	h.sync()
	h.requireBooks(id, 10)
}

// The control of the test above: without what somebody saw, and without the tip, a Redis that went back looks whole.
func TestLost_ControlWithoutAWatermarkAnOldSnapshotOversells(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := h.open(2, nil)
	require.NoError(t, h.rdb.Save(t.Context()).Err())
	require.Equal(t, models.OutcomeClaimed, h.claim(id, ask("a", ""))[0].Outcome)
	require.NoError(t, h.rdb.ConfigSet(t.Context(), "save", "").Err())
	h.server.Kill()
	h.server.Start()
	taken := 1
	for _, r := range h.claim(id, asks("n", 5)...) {
		if r.Outcome == models.OutcomeClaimed {
			taken++
		}
	}
	require.Greater(t, taken, 2, "oversold")
}

// The hazard of the article: claims in flight, the key expires, everybody reloads. I1, I5.
func TestLost_ClaimsInFlightWhileTheKeyExpires(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const units = 300
	id := h.open(units, nil)
	sold := h.rush(id, units, func() error { return h.hydrate(id) })
	require.Equal(t, int64(units), sold)
	h.sync()
	require.NoError(t, h.hydrate(id))
	h.requireBooks(id, units)
	require.Greater(t, h.campaign(id).Epoch, int64(1), "it was lost, and proven")
}

// Its control: a loader that takes an absent key for one that was never there, as a plain EXPIRE and reload does.
func TestLost_ControlPlainExpireAndReloadOversells(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const units = 300
	id := h.open(units, nil)
	sold := h.rush(id, units, func() error {
		h.lose(id, func(k lua.CampaignKeys) []string { return []string{k.Users, k.Keys} })
		c := h.campaign(id) // remaining of MySQL is the stock, as it stands
		c.Total, c.Epoch = c.Remaining, 1
		_, err := h.scripts.Load(h.t.Context(), &c)
		return err
	})
	require.Greater(t, sold, int64(units), "oversold")
}

// rush claims units from several goroutines, expires the keys now and then, and has them reloaded by whoever finds them gone.
// It returns how many were taken.
func (h *house) rush(id string, units int, reload func() error) int64 {
	h.t.Helper()
	var taken atomic.Int64
	k := lua.KeysOf(id, 0)
	var claimers errgroup.Group
	for g := range 4 {
		claimers.Go(func() error {
			for i, refused := 0, 0; refused < 20; i++ {
				r := h.claim(id, ask(fmt.Sprintf("u-%d-%d", g, i), ""))[0]
				switch r.Outcome {
				case models.OutcomeClaimed:
					taken.Add(1)
				case models.OutcomeSoldOut:
					refused++
				default:
					if err := reload(); err != nil {
						time.Sleep(time.Millisecond) //nolint:forbidigo // before it asks again
					}
				}
				if g == 0 && i%40 == 39 && taken.Load() < int64(units) {
					if err := h.rdb.PExpire(h.t.Context(), k.State, time.Millisecond).Err(); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	synced := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(synced)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond): // the lag that the hazard needs
				h.sync()
			}
		}
	}()
	require.NoError(h.t, claimers.Wait())
	close(stop)
	<-synced
	return taken.Load()
}

// 1,000 first claims at once, over several processes, load once.
func TestHydrator_AThousandFirstClaimsLoadOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	id := stored(t, h.db, h.scripts, 400)
	var processes []*syncer.Hydrator
	for range 4 {
		processes = append(processes, h.hydrator())
	}
	var took atomic.Int64
	var g errgroup.Group
	for i := range 1000 {
		g.Go(func() error {
			for {
				switch h.claim(id, ask(fmt.Sprintf("u-%d", i), ""))[0].Outcome {
				case models.OutcomeClaimed:
					took.Add(1)
					return nil
				case models.OutcomeSoldOut:
					return nil
				default:
					if _, err := processes[i%4].Hydrate(t.Context(), id); err != nil {
						return err
					}
				}
			}
		})
	}
	require.NoError(t, g.Wait())
	require.Equal(t, int64(400), took.Load())
	require.Equal(t, int64(1), h.campaign(id).LoadAttempts)
}

// A rebuild that dies anywhere is taken up by the next one, and nothing is claimed before it is whole.
func TestRebuild_WhereverItDiesTheNextOneGoesOn(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, last := range []string{"fenced", "lost", "numbered", "page", "staged", "loaded", "confirmed", "opened"} {
		id := h.open(7, nil)
		h.claim(id, asks("u", 5)...)
		h.sync()
		h.lose(id, stateOnly)
		require.PanicsWithValue(t, died{}, func() {
			_, _ = syncer.HydrateWithStep(t.Context(), h.hydrator(), id, func(step string) {
				if step == last {
					panic(died{})
				}
			})
		}, last)
		if last != "opened" {
			require.False(t, h.claim(id, ask("early", ""))[0].Outcome.Took(), last)
		}
		require.NoError(t, h.hydrate(id), last)
		require.Equal(t, []string{"", ":keys", ":users"}, h.keysOf(id), "%s: nothing staged is left", last)
		taken := 0
		for _, r := range h.claim(id, asks("v", 10)...) {
			if r.Outcome == models.OutcomeClaimed {
				taken++
			}
		}
		require.Equal(t, 2, taken, last)
		h.sync()
		h.requireBooks(id, 7)
	}
}

// Rows that do not add up are not brought back in silence: a row that somebody deleted would be sold again.
func TestRebuild_RefusesRowsThatDoNotAddUp(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for name, damage := range map[string]string{
		"a row in the middle":   "DELETE FROM claims WHERE campaign_id = ? AND seq = 2",
		"the last row":          "DELETE FROM claims WHERE campaign_id = ? AND seq = 4",
		"a quantity":            "UPDATE claims SET quantity = 2 WHERE campaign_id = ? AND seq = 2",
		"the counter of units":  "UPDATE campaigns SET claimed = claimed - 1 WHERE id = ?",
		"the counter of claims": "UPDATE campaigns SET synced_seq = 3 WHERE id = ?",
	} {
		id := h.open(9, nil)
		h.claim(id, asks("u", 4)...)
		h.sync()
		require.NoError(t, h.db.Exec(damage, id).Error)
		h.lose(id, wholeCampaign)
		require.ErrorIs(t, h.hydrate(id), syncer.ErrLost, name)
		require.Equal(t, models.ResidencyLost, h.residency(id), name)
		require.Equal(t, models.OutcomeAbsent, h.claim(id, ask("x", ""))[0].Outcome, name)
		require.Empty(t, h.keysOf(id), "nothing staged is left: %s", name)
	}
}
