package residency_test

import (
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/residency"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// evicted is a campaign that was evicted with so many claims of one unit each.
func evicted(h *syncertest.Stack, total int64, claims int) (id string) {
	h.T.Helper()
	id = h.Create(total, nil)
	h.Take(id, syncertest.Asks("u", claims)...)
	evict(h, id)
	return id
}

func evict(h *syncertest.Stack, id string) {
	h.T.Helper()
	require.Eventually(h.T, func() bool {
		h.Evict(time.Millisecond)
		return h.Residency(id) == models.ResidencyEvicted
	}, time.Minute, time.Millisecond)
}

func unlockLoader(h *syncertest.Stack, id string) {
	h.T.Helper()
	h.Exec("UPDATE lots SET loader = '' WHERE id = ?", id)
}

// once is a step that is taken the first time that a load has the name.
func once(at string, does func()) func(step string) {
	return func(step string) {
		if step == at {
			at = ""
			does()
		}
	}
}

// A loader gets its number and sleeps. It wakes after another process has loaded the campaign, which was claimed from and lost before MySQL
// had the claim. Its load is not confirmed.
func TestRebuild_ALatecomerIsNotConfirmed(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := evicted(h, 2, 1)
	_, err := residency.HydrateWithStep(t.Context(), h.Hydrator(), id, once("numbered", func() {
		unlockLoader(h, id)
		require.NoError(t, h.Hydrate(id))
		require.Equal(t, models.OutcomeClaimed, h.Claim(id, syncertest.Ask("v", ""))[0].Outcome)
		h.Lose(id, syncertest.WholeCampaign)
	}))
	require.Error(t, err)
	require.EqualValues(t, 3, h.Campaign(id).Epoch)
	require.False(t, h.Claim(id, syncertest.Ask("w", ""))[0].Outcome.Took())
}

// A claim that was given up comes after all while the campaign is loaded. The sums of the books are the same then, but not the rows.
func TestRebuild_IsNotConfirmedWhenAClaimThatWasGivenUpComes(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := evicted(h, 9, 3)
	h.Exec("UPDATE lots SET synced_seq = 4, lost_claims = 1 WHERE id = ?", id)
	_, err := residency.HydrateWithStep(t.Context(), h.Hydrator(), id, once("loaded", func() {
		late := syncertest.ClaimsOf(id, 4, 1)
		late[0].Quantity = 1
		require.NoError(t, syncertest.SubmitAll(t.Context(), h.Writer, late))
		h.Exec("UPDATE lots SET synced_seq = 4, lost_claims = 0 WHERE id = ?", id)
	}))
	require.NoError(t, err)
	require.Zero(t, h.Campaign(id).LostClaims)
	h.RequireBooks(id, 4)
}

// Rows are archived while their campaign is loaded. The load starts over, or Redis would hold records of claims that no row has.
func TestRebuild_IsNotConfirmedWhenRowsAreArchived(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(9, nil)
	h.Take(id, syncertest.Asks("u", 3)...)
	h.Shut(id)
	evict(h, id)
	_, err := residency.HydrateWithStep(t.Context(), h.Hydrator(), id, once("loaded", func() {
		h.Exec("UPDATE lots SET archived_claims = 2, archived_units = 2 WHERE id = ?", id)
		h.Exec("DELETE FROM claims WHERE campaign_id = ? AND seq < 3", id)
	}))
	require.NoError(t, err)
	require.Empty(t, h.Compare(id).Differences)
}

// Someone changes the campaign more often than a load of it takes. It is loaded, and its first claim works by the last change.
func TestRebuild_IsConfirmedThoughItsDefinitionChanges(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := evicted(h, 9, 3)
	total := int64(9)
	_, err := residency.HydrateWithStep(t.Context(), h.Hydrator(), id, func(step string) {
		if step == "numbered" || step == "staged" {
			total++
			_, err := syncertest.NewCampaigns(t, h.DB, h.Scripts).Change(t.Context(), id, models.Change{Total: &total})
			require.NoError(t, err)
		}
	})
	require.NoError(t, err)
	require.Equal(t, int64(11), total, "one load")
	state, err := h.Scripts.State(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, total, state.Total)
	c := h.Campaign(id)
	require.Equal(t, c.Version, c.AppliedVersion)
	require.Empty(t, h.Compare(id).Differences)
}

// Of two campaigns that are loaded together one is changed. The other one is opened at once, and both work by what MySQL has.
func TestFirsts_OneThatIsChangedMeanwhileLeavesTheOtherAlone(t *testing.T) {
	t.Parallel()
	for _, changed := range []int{0, 1} {
		h := syncertest.NewStack(t)
		ids := []string{syncertest.Stored(t, h.DB, h.Scripts, 5), syncertest.Stored(t, h.DB, h.Scripts, 5)}
		total := int64(5)
		change := func() {
			total++
			_, err := syncertest.NewCampaigns(t, h.DB, h.Scripts).Change(t.Context(), ids[changed], models.Change{Total: &total})
			require.NoError(t, err)
		}
		change() // its version is another than that of the other
		metas := residency.FirstsWithStep(t.Context(), h.Hydrator(), ids, once("numbered", change))
		require.NotNil(t, metas[1-changed])
		for i, id := range ids {
			if metas[i] == nil {
				require.NoError(t, h.Hydrate(id))
			}
			state, err := h.Scripts.State(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, models.StatusOpen, state.Status)
			require.Equal(t, h.Campaign(id).Total, state.Total)
		}
	}
}

// A MySQL that was restored hands out numbers of loads once more. A load whose number it does not know is not confirmed.
func TestRebuild_IsNotConfirmedUnderANumberThatMySQLForgot(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		h := syncertest.NewStack(t)
		id := evicted(h, 9, 3)
		forget := once("loaded", func() {
			h.Exec("UPDATE lots SET load_attempts = load_attempts - 1 WHERE id = ?", id)
			if dies {
				panic(syncertest.Died{})
			}
		})
		if dies {
			require.PanicsWithValue(t, syncertest.Died{}, func() { _, _ = residency.HydrateWithStep(t.Context(), h.Hydrator(), id, forget) })
			unlockLoader(h, id)
			require.NoError(t, h.Hydrate(id))
		} else {
			_, err := residency.HydrateWithStep(t.Context(), h.Hydrator(), id, forget)
			require.NoError(t, err)
		}
		c := h.Campaign(id)
		require.LessOrEqual(t, c.Epoch, c.LoadAttempts, "the next load has a higher number")
		h.RequireBooks(id, 3)
	}
}

// A loader that dies leaves a copy. The next one puts it in force only if it is what MySQL says by then.
func TestRebuild_ACopyOfALoaderThatDiedIsComparedWithMySQL(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		changes         []string
		taken, released int64
	}{
		"units": {[]string{
			"UPDATE claims SET quantity = 2 WHERE campaign_id = ? AND seq = 1",
			"UPDATE lots SET claimed = 3 WHERE id = ?",
		}, 3, 0},
		"releases": {[]string{
			"UPDATE claims SET status = 'released' WHERE campaign_id = ? AND seq = 1",
			"UPDATE claims SET quantity = 2 WHERE campaign_id = ? AND seq = 2",
			"UPDATE lots SET released_claims = 1 WHERE id = ?",
		}, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := syncertest.NewStack(t)
			id := evicted(h, 9, 2)
			require.PanicsWithValue(t, syncertest.Died{}, func() {
				_, _ = residency.HydrateWithStep(t.Context(), h.Hydrator(), id, once("loaded", func() { panic(syncertest.Died{}) }))
			})
			for _, change := range c.changes {
				h.Exec(change, id)
			}
			unlockLoader(h, id)
			require.NoError(t, h.Hydrate(id))
			state, err := h.Scripts.State(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, []int64{c.taken, c.released}, []int64{state.Taken, state.Released})
		})
	}
}

// The units of a redeemed claim are its user's for good.
func TestRebuild_RedeemedClaimsHoldTheirUnits(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := evicted(h, 2, 2)
	h.Exec("UPDATE claims SET status = 'redeemed' WHERE campaign_id = ? AND seq = 1", id)
	require.NoError(t, h.Hydrate(id))
	require.Equal(t, models.OutcomeSoldOut, h.Claim(id, syncertest.Ask("w", ""))[0].Outcome)
	h.RequireBooks(id, 2)
}

// MySQL says that a campaign was evicted only if it has all that was evicted, and Redis does not hold the campaign.
func TestEvict_AnEvictionIsRecordedOnlyInFull(t *testing.T) {
	t.Parallel()
	restore := func(h *syncertest.Stack, id string) {
		h.Exec("UPDATE lots SET synced_seq = 1, claimed = 1 WHERE id = ?", id)
		h.Exec("DELETE FROM claims WHERE campaign_id = ? AND seq = 2", id)
	}
	evictUntilGone := func(h *syncertest.Stack, does func()) {
		h.T.Helper()
		evictor := syncertest.NewMaintainer(h.T, h.DB, h.Scripts, time.Millisecond)
		for range 10_000 { // until it is idle
			n, err := residency.EvictWithStep(h.T.Context(), evictor, once("gone", does))
			require.NoError(h.T, err)
			if n == 1 {
				return
			}
		}
		require.Fail(h.T, "it is not evicted")
	}
	t.Run("by its evictor", func(t *testing.T) {
		t.Parallel()
		h := syncertest.NewStack(t)
		id := h.Create(9, nil)
		h.Take(id, syncertest.Asks("u", 2)...)
		evictUntilGone(h, func() { restore(h, id) })
		require.Equal(t, models.ResidencyResident, h.Residency(id))
	})
	t.Run("by who finds the tombstone", func(t *testing.T) {
		t.Parallel()
		h := syncertest.NewStack(t)
		id := h.Create(9, nil)
		h.Take(id, syncertest.Asks("u", 2)...)
		require.PanicsWithValue(t, syncertest.Died{}, func() { evictUntilGone(h, func() { panic(syncertest.Died{}) }) })
		restore(h, id)
		require.NoError(t, h.Hydrator().Examine(t.Context(), id))
		require.Equal(t, models.ResidencyLost, h.Residency(id))
	})
	t.Run("beside a campaign that redis holds", func(t *testing.T) {
		t.Parallel()
		h := syncertest.NewStack(t)
		id := h.Create(9, nil)
		h.Take(id, syncertest.Asks("u", 2)...)
		require.NoError(t, h.Redis.Set(t.Context(), h.Keys(id).Evicted, "1:2:0", 0).Err())
		require.NoError(t, h.Scripts.Fence(t.Context(), id, 1))
		require.NoError(t, h.Hydrator().Examine(t.Context(), id))
		require.Equal(t, models.ResidencyLost, h.Residency(id))
	})
}

// Redis loses a stream alone. What it remembers of how far MySQL had recorded the old one says nothing of the new one.
func TestWatch_AStreamThatBeginsAnewIsNoMySQLThatWasRestored(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	h.Take(h.Create(9, nil), syncertest.Asks("u", 3)...)
	require.Zero(t, watch(h))
	require.NoError(t, h.Redis.Del(t.Context(), lua.StreamKey(0)).Err())
	require.Equal(t, 1, watch(h))
	var loss string
	require.NoError(t, h.DB.Raw("SELECT loss FROM streams").Scan(&loss).Error)
	require.Contains(t, loss, "redis was rolled back")
	require.Zero(t, watch(h))
}

// A process finds a campaign lost twice. The second time it waits for what came into the stream since the first.
func TestProof_WaitsForTheTipOfTheLatestLoss(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(3, nil)
	one := h.Hydrator()
	for _, user := range []string{"u", "v"} {
		require.Equal(t, models.OutcomeClaimed, h.Claim(id, syncertest.Ask(user, ""))[0].Outcome)
		h.Lose(id, syncertest.WholeCampaign)
		_, err := one.Hydrate(t.Context(), id)
		require.ErrorIs(t, err, residency.ErrUnsynced, "the claim of "+user+" is in the stream only")
		h.Sync()
		require.NoError(t, h.Hydrate(id), "by another process")
	}
	h.RequireBooks(id, 2)
}

// A campaign that was loaded under an earlier generation of its stream is out of use, though no one has stopped it.
func TestMaintainer_LooksAfterCampaignsOfAnEarlierGeneration(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(9, nil)
	h.Take(id, syncertest.Ask("u", ""))
	h.Exec("UPDATE streams SET birth = 'next'")
	setGeneration(h, "next")
	_, err := syncertest.NewMaintainer(t, h.DB, h.Scripts, time.Hour).Attend(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, models.ResidencyLost, h.Residency(id))
	require.ErrorIs(t, h.Hydrate(id), campaigns.ErrLost)
	require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("w", ""))[0].Outcome)
}

func TestExamine_ALoadThatMySQLDoesNotKnowIsOutOfUse(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(9, nil)
	h.Take(id, syncertest.Ask("u", ""))
	require.NoError(t, h.Redis.HSet(t.Context(), h.Keys(id).State, "epoch", 2).Err())
	require.NoError(t, h.Hydrator().Examine(t.Context(), id))
	require.Equal(t, models.ResidencyLost, h.Residency(id))
	require.Equal(t, "redis holds load 2, mysql knows load 1", h.Campaign(id).ResidencyReason)
}

// A first load is of a campaign that has neither rows nor parked claims, whatever its counters say.
func TestFirsts_ACampaignWithClaimsIsLoadedByItself(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	rows, parked, blank := syncertest.Stored(t, h.DB, h.Scripts, 9), syncertest.Stored(t, h.DB, h.Scripts, 9), syncertest.Stored(t, h.DB, h.Scripts, 9)
	h.Exec("INSERT INTO claims (id, campaign_id, shard, seq, user_id, quantity, status, key_digest, epoch, claimed_at, synced_at)"+
		" VALUES (?, ?, 0, 1, 'u', 1, 'claimed', '', 1, NOW(), NOW())", uuid.NewString(), rows)
	h.Exec("INSERT INTO parked_events (id, campaign_id, reason, payload, parked_at) VALUES (?, ?, 'x', '{}', NOW())", uuid.NewString(), parked)
	metas := residency.FirstsWithStep(t.Context(), h.Hydrator(), []string{rows, parked, blank}, func(string) {})
	require.Nil(t, metas[0])
	require.Nil(t, metas[1])
	require.NotNil(t, metas[2])
}

// A user has two claims with one idempotency key when Redis lost the first, the client sent it again, and a repair restored the first.
// Such a
// campaign is loaded, and the key replays the later claim.
func TestRebuild_TwoClaimsWithOneKey(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(3, nil)
	h.Take(id, syncertest.Ask("u", "k1"), syncertest.Ask("u", "k2"))
	evict(h, id)
	var first string
	require.NoError(t, h.DB.Raw("SELECT key_digest FROM claims WHERE campaign_id = ? AND seq = 1", id).Scan(&first).Error)
	require.NoError(t, h.DB.Exec("UPDATE claims SET key_digest = ? WHERE campaign_id = ?", first, id).Error)
	require.NoError(t, h.Hydrate(id))
	reply := h.Claim(id, syncertest.Ask("u", "k1"))[0]
	require.Equal(t, models.OutcomeReplayed, reply.Outcome)
	require.Equal(t, int64(2), reply.Claim.Seq)
}
