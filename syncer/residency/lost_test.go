package residency_test

import (
	"fmt"
	"strings"
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
	"golang.org/x/sync/errgroup"
)

// I9: what Redis lost is refused, never guessed; when the stream proves that MySQL has it all, claims go on by themselves.
func TestLost_AKeyThatVanishedComesBackOnceItsClaimsAreInMySQL(t *testing.T) {
	t.Parallel()
	for name, which := range map[string]func(k lua.CampaignKeys) []string{
		"state": syncertest.StateOnly, "all": syncertest.WholeCampaign,
		"users": func(k lua.CampaignKeys) []string { return []string{k.Users} },
		"keys":  func(k lua.CampaignKeys) []string { return []string{k.Keys} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := syncertest.NewStack(t)
			id := h.Create(5, nil)
			h.Claim(id, syncertest.Ask("u", "k"), syncertest.Ask("v", ""))
			h.Sync()
			h.Claim(id, syncertest.Ask("w", ""))
			h.Lose(id, which)

			require.ErrorIs(t, h.Hydrate(id), residency.ErrUnsynced, "a claim is in the stream only")
			require.Equal(t, models.ResidencyLost, h.Residency(id))
			require.NotEmpty(t, h.Campaign(id).ResidencyReason)
			require.False(t, h.Claim(id, syncertest.Ask("x", ""))[0].Outcome.Took())
			require.Equal(t, int64(1), lostCount(h))

			h.Sync()
			n, err := syncertest.NewMaintainer(t, h.DB, h.Scripts, time.Hour).Attend(t.Context(), true)
			require.NoError(t, err)
			require.Equal(t, 1, n, "proven, and back by itself")
			require.Equal(t, []models.Outcome{models.OutcomeReplayed, models.OutcomeClaimed, models.OutcomeClaimed, models.OutcomeSoldOut},
				syncertest.OutcomesOf(h.Claim(id, syncertest.Ask("u", "k"), syncertest.Ask("x", ""), syncertest.Ask("y", ""), syncertest.Ask("z", ""))))
			h.Sync()
			h.RequireBooks(id, 5)
			require.Zero(t, lostCount(h))
		})
	}
}

func lostCount(h *syncertest.Stack) (n int64) {
	h.T.Helper()
	require.NoError(h.T, h.DB.Raw("SELECT COUNT(*) FROM campaigns WHERE residency = 'lost'").Row().Scan(&n))
	return n
}

// An empty Redis proves nothing about what it held; what it did not hold loads as ever.
func TestLost_AfterAFlushOnlyWhatWasNotThereLoads(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	evicted := h.Create(3, nil)
	h.Claim(evicted, syncertest.Ask("u", "k"))
	h.Sync()
	require.Eventually(t, func() bool { return h.Evict(time.Millisecond) == 1 }, time.Minute, time.Millisecond)
	never := syncertest.Stored(t, h.DB, h.Scripts, 2)
	resident := h.Create(4, nil)
	h.Claim(resident, syncertest.Ask("u", "k"))
	h.Sync()
	h.Claim(resident, syncertest.Ask("v", ""), syncertest.Ask("w", "")) // no one will ever know of these
	require.NoError(t, h.Redis.FlushAll(t.Context()).Err())             //nolint:forbidigo // its own Redis, and the fault itself

	require.NoError(t, h.Hydrate(never))
	require.NoError(t, h.Hydrate(evicted))
	require.Equal(t, models.OutcomeReplayed, h.Claim(evicted, syncertest.Ask("u", "k"))[0].Outcome)
	require.ErrorIs(t, h.Hydrate(resident), campaigns.ErrLost)
	require.False(t, h.Claim(resident, syncertest.Ask("x", ""))[0].Outcome.Took())
	h.Sync()
	_, err := syncertest.NewMaintainer(t, h.DB, h.Scripts, time.Hour).Attend(t.Context(), true)
	require.NoError(t, err)
	require.ErrorIs(t, h.Hydrate(resident), campaigns.ErrLost, "time proves nothing")

	h.Sync()
	_, err = h.Hydrator().Recover(t.Context(), resident, lua.Position{Epoch: 1, Seq: 3}) // by an API process that saw them
	require.ErrorIs(t, err, campaigns.ErrLost)
	require.Contains(t, strings.Join(h.Repair(resident, reconcile.RepairHow{}).Left.Differences, "\n"), "seq 2 to 3;")
	require.Empty(t, h.Repair(resident, reconcile.RepairHow{GiveUpClaims: true}).Left.Differences)
	require.Equal(t, int64(2), h.Campaign(resident).Epoch)
	replies := h.Claim(resident, syncertest.Ask("u", "k"), syncertest.Ask("x", ""))
	require.Equal(t, []models.Outcome{models.OutcomeReplayed, models.OutcomeClaimed}, syncertest.OutcomesOf(replies))
	require.Equal(t, int64(4), replies[1].Claim.Seq, "seqs that someone was answered are not given again")
	h.Sync()
	c := h.Campaign(resident)
	require.Equal(t, []int64{4, 2, 2, 2}, []int64{c.SyncedSeq, c.LostClaims, c.Claimed, c.Remaining})
	require.Eventually(t, func() bool { return h.Evict(time.Millisecond) > 0 }, time.Minute, time.Millisecond, "whole again")
	require.NoError(t, h.Hydrate(resident))
}

// Not one claim reached MySQL, and an API process saw some: their seqs are given up, and the stock is sold to others.
func TestLost_WhenEveryClaimIsLostTheStockIsSoldAnew(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(3, func(c *models.Campaign) { c.PerUser = 1 })
	_, now := h.ClaimAfter(id, lua.Position{}, syncertest.Asks("gone", 2)...)
	require.NoError(t, h.Redis.FlushAll(t.Context()).Err()) //nolint:forbidigo // its own Redis, and the fault itself
	_, err := h.Hydrator().Recover(t.Context(), id, now.Position)
	require.ErrorIs(t, err, campaigns.ErrLost)
	done := h.Repair(id, reconcile.RepairHow{})
	require.Empty(t, done.Steps, "no one asked for them to be given up")
	require.Contains(t, fmt.Sprint(done.Left.Differences), "nothing is left of them: seq 1 to 2;")
	done = h.Repair(id, reconcile.RepairHow{GiveUpClaims: true})
	require.Empty(t, done.Left.Differences)
	require.Equal(t, int64(2), h.Campaign(id).LostClaims)
	replies := h.Claim(id, syncertest.Asks("new", 4)...)
	require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeClaimed, models.OutcomeClaimed, models.OutcomeSoldOut}, syncertest.OutcomesOf(replies))
	require.Equal(t, int64(3), replies[0].Claim.Seq, "behind the seqs that are given up")
	h.Sync()
	h.RequireBooks(id, 3)
	require.Empty(t, h.Compare(id).Differences)
}

// A pause stops the claims, so nothing else reports a Redis that forgot it: neither the stream nor the count of claims went back.
func TestLost_ARedisThatForgotAChangeIsToldAgain(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, nil)
	h.Claim(id, syncertest.Asks("early", 3)...)
	h.Sync()
	_, err := h.Maintainer().Watch(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Redis.Save(t.Context()).Err())
	paused, total := models.StatusPaused, int64(5)
	_, err = syncertest.NewCampaigns(t, h.DB, h.Scripts).Change(t.Context(), id, models.Change{Status: &paused, Total: &total})
	require.NoError(t, err)
	require.Equal(t, models.OutcomePaused, h.Claim(id, syncertest.Ask("x", ""))[0].Outcome)
	h.Server.Kill()
	h.Server.Start()
	state, err := h.Scripts.State(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, models.StatusOpen, state.Status, "it forgot")

	require.Contains(t, fmt.Sprint(h.Compare(id).Differences), "redis was rolled back: it works by definition 1,")
	reconciler, maintainer := h.Leader()
	_, err = reconciler.Reconcile(t.Context())
	require.NoError(t, err)
	require.NoError(t, maintainer.Maintain(t.Context(), false))
	require.Empty(t, h.Compare(id).Differences)
	require.Equal(t, models.OutcomePaused, h.Claim(id, syncertest.Ask("x", ""))[0].Outcome)
	state, err = h.Scripts.State(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []int64{5, 3, 3}, []int64{state.Total, state.Taken, state.Seq})
}

// Redis is restored to an older snapshot while the stream goes back with it: no one can tell what it held in the meantime.
func TestLost_ARedisThatWasRolledBackIsFencedAndRepaired(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id, quiet1 := h.Create(10, nil), h.Create(10, nil)
	h.Claim(id, syncertest.Ask("a", "a"))
	h.Sync()
	marker := h.Maintainer()
	broken, err := marker.Watch(t.Context())
	require.NoError(t, err)
	require.Zero(t, broken)
	require.NoError(t, h.Redis.Save(t.Context()).Err())
	_, now := h.ClaimAfter(id, lua.Position{}, syncertest.Ask("b", "b"), syncertest.Ask("c", "c"))
	h.Sync() // b and c have their rows
	h.Claim(id, syncertest.Ask("d", ""))
	_, err = marker.Watch(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Redis.ConfigSet(t.Context(), "save", "").Err())
	h.Server.Kill()
	h.Server.Start()

	require.Equal(t, lua.Position{Epoch: 1, Seq: 3}, now.Position)
	replies, held := h.ClaimAfter(id, now.Position, syncertest.Ask("e", ""), syncertest.Ask("a", "a"))
	require.Equal(t, []models.Outcome{models.OutcomeRolledBack, models.OutcomeRolledBack}, syncertest.OutcomesOf(replies))
	require.Equal(t, lua.Position{Epoch: 1, Seq: 1}, held.Position)
	require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("e", ""))[0].Outcome, "fenced for those, too, who saw nothing")

	_, err = h.Hydrator().Recover(t.Context(), id, now.Position)
	require.ErrorIs(t, err, campaigns.ErrLost)
	_, err = syncertest.NewMaintainer(t, h.DB, h.Scripts, time.Hour).Attend(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, models.ResidencyLost, h.Residency(quiet1), "it may have had claims as well")

	h.Sync()
	require.Empty(t, h.Repair(id, reconcile.RepairHow{GiveUpClaims: true}).Left.Differences)
	require.Empty(t, h.Repair(quiet1, reconcile.RepairHow{}).Left.Differences)
	require.Equal(t, []models.Outcome{models.OutcomeReplayed, models.OutcomeReplayed, models.OutcomeReplayed},
		syncertest.OutcomesOf(h.Claim(id, syncertest.Ask("a", "a"), syncertest.Ask("b", "b"), syncertest.Ask("c", "c"))))
	fresh, _ := h.ClaimAfter(id, now.Position, syncertest.Asks("n", 20)...)
	require.Equal(t, models.OutcomeClaimed, fresh[0].Outcome, "a newer load than was seen is no loss")
	h.Sync()
	h.RequireBooks(id, 10)
}

// The control of the test above: without what someone saw, and without the tip, a Redis that was rolled back looks whole.
func TestLost_ControlWithoutAWatermarkAnOldSnapshotOversells(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(2, nil)
	require.NoError(t, h.Redis.Save(t.Context()).Err())
	require.Equal(t, models.OutcomeClaimed, h.Claim(id, syncertest.Ask("a", ""))[0].Outcome)
	require.NoError(t, h.Redis.ConfigSet(t.Context(), "save", "").Err())
	h.Server.Kill()
	h.Server.Start()
	taken := 1
	for _, r := range h.Claim(id, syncertest.Asks("n", 5)...) {
		if r.Outcome == models.OutcomeClaimed {
			taken++
		}
	}
	require.Greater(t, taken, 2, "oversold")
}

// The hazard of the article: claims in flight, the key expires, everybody reloads. I1, I5.
func TestLost_ClaimsInFlightWhileTheKeyExpires(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	const units = 300
	id := h.Create(units, nil)
	sold := rush(h, id, units, 20*time.Millisecond, func() error { return h.Hydrate(id) })
	require.Equal(t, int64(units), sold)
	h.Sync()
	require.NoError(t, h.Hydrate(id))
	h.RequireBooks(id, units)
	require.Greater(t, h.Campaign(id).Epoch, int64(1), "it was lost, and proven")
}

// Its control: a loader that takes an absent key for one that was never there, as a plain EXPIRE and reload does. MySQL hears nothing until
// the rush is over, so that the hazard does not depend on luck.
func TestLost_ControlPlainExpireAndReloadOversells(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	const units = 300
	id := h.Create(units, nil)
	sold := rush(h, id, units, time.Hour, func() error {
		h.Lose(id, func(k lua.CampaignKeys) []string { return []string{k.Users, k.Keys} })
		c := h.Campaign(id) // remaining of MySQL is the stock, as it stands
		c.Total, c.Epoch = c.Remaining, 1
		_, err := h.Scripts.Load(h.T.Context(), &c)
		return err
	})
	require.Greater(t, sold, int64(units), "oversold")
}

// rushTries is the most claims of one goroutine: a broken loader may leave a campaign that takes none any more.
const rushTries = 5000

// rush claims units from several goroutines, expires the keys now and then, and has them reloaded by whoever finds them gone. MySQL is
// behind by lag. It returns how many were taken.
func rush(h *syncertest.Stack, id string, units int, lag time.Duration, reload func() error) int64 {
	h.T.Helper()
	var taken atomic.Int64
	k := lua.KeysOf(id, 0)
	var claimers errgroup.Group
	for g := range 4 {
		claimers.Go(func() error {
			for i, refused := 0, 0; refused < 20 && i < rushTries; i++ {
				r := h.Claim(id, syncertest.Ask(fmt.Sprintf("u-%d-%d", g, i), ""))[0]
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
				if i%40 == 39 && taken.Load() < int64(units) {
					if err := h.Redis.PExpire(h.T.Context(), k.State, time.Millisecond).Err(); err != nil {
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
			case <-time.After(lag):
				h.Sync()
			}
		}
	}()
	require.NoError(h.T, claimers.Wait())
	close(stop)
	<-synced
	return taken.Load()
}

// 1,000 first claims at once, over several processes, load once.
func TestHydrator_AThousandFirstClaimsLoadOnce(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := syncertest.Stored(t, h.DB, h.Scripts, 400)
	var processes []*residency.Hydrator
	for range 4 {
		processes = append(processes, h.Hydrator())
	}
	var took atomic.Int64
	var g errgroup.Group
	for i := range 1000 {
		g.Go(func() error {
			for {
				switch h.Claim(id, syncertest.Ask(fmt.Sprintf("u-%d", i), ""))[0].Outcome {
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
	require.Equal(t, int64(1), h.Campaign(id).LoadAttempts)
}

// A rebuild that dies anywhere is taken up by the next one, and nothing is claimed before it is whole.
func TestRebuild_WhereverItDiesTheNextOneGoesOn(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	for _, last := range []string{"fenced", "lost", "numbered", "page", "staged", "loaded", "confirmed", "opened"} {
		id := h.Create(7, nil)
		h.Claim(id, syncertest.Asks("u", 5)...)
		h.Sync()
		h.Lose(id, syncertest.StateOnly)
		require.PanicsWithValue(t, syncertest.Died{}, func() {
			_, _ = residency.HydrateWithStep(t.Context(), h.Hydrator(), id, func(step string) {
				if step == last {
					panic(syncertest.Died{})
				}
			})
		}, last)
		if last != "opened" {
			require.False(t, h.Claim(id, syncertest.Ask("early", ""))[0].Outcome.Took(), last)
		}
		require.NoError(t, h.Hydrate(id), last)
		require.Equal(t, []string{"", ":keys", ":users"}, h.KeysOf(id), "%s: nothing staged is left", last)
		taken := 0
		for _, r := range h.Claim(id, syncertest.Asks("v", 10)...) {
			if r.Outcome == models.OutcomeClaimed {
				taken++
			}
		}
		require.Equal(t, 2, taken, last)
		h.Sync()
		h.RequireBooks(id, 7)
	}
}

// Rows that do not add up are not restored in silence: a row that someone deleted would be sold again.
func TestRebuild_RefusesRowsThatDoNotAddUp(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	for name, damage := range map[string]string{
		"a row in the middle":   "DELETE FROM claims WHERE campaign_id = ? AND seq = 2",
		"the last row":          "DELETE FROM claims WHERE campaign_id = ? AND seq = 4",
		"a quantity":            "UPDATE claims SET quantity = 2 WHERE campaign_id = ? AND seq = 2",
		"the counter of units":  "UPDATE lots SET claimed = claimed - 1 WHERE id = ?",
		"the counter of claims": "UPDATE lots SET synced_seq = 3 WHERE id = ?",
		"claims that are lost":  "UPDATE lots SET lost_claims = 1 WHERE id = ?",
		"released claims":       "UPDATE lots SET released_claims = 1 WHERE id = ?",
	} {
		id := h.Create(9, nil)
		h.Claim(id, syncertest.Asks("u", 4)...)
		h.Sync()
		require.NoError(t, h.DB.Exec(damage, id).Error)
		h.Lose(id, syncertest.WholeCampaign)
		require.ErrorIs(t, h.Hydrate(id), campaigns.ErrLost, name)
		require.Equal(t, models.ResidencyLost, h.Residency(id), name)
		require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("x", ""))[0].Outcome, name)
		require.Empty(t, h.KeysOf(id), "nothing staged is left: %s", name)
	}
}
