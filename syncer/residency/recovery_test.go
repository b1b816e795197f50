package residency_test

import (
	"testing"

	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/residency"
	"dibs/syncer/resolve"

	"github.com/stretchr/testify/require"
)

// A campaign of many holds is never without a release: one that comes while it is loaded must not cost the load, and what it gives
// back is in Redis afterwards.
func TestRebuild_GoesThroughWhileClaimsAreReleased(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(3, func(c *models.Campaign) { c.PerUser = 1 })
	ids := h.Take(id, syncertest.Ask("u", ""), syncertest.Ask("v", ""), syncertest.Ask("w", ""))
	h.Lose(id, syncertest.WholeCampaign)
	relay := resolve.NewRelay(h.DB, h.Scripts, nil)
	resolver := resolve.NewResolver(h.DB, relay, syncertest.Quiet())
	release := func(step string) {
		if step == "staged" && len(ids) > 1 {
			_, err := resolver.Release(t.Context(), ids[0], "")
			require.NoError(t, err)
			ids = ids[1:]
		}
	}
	_, err := residency.HydrateWithStep(t.Context(), h.Hydrator(), id, release)
	require.NoError(t, err)
	require.Len(t, ids, 2, "one was released")
	require.Equal(t, int64(2), h.Campaign(id).LoadAttempts, "the first try is the last one")
	syncertest.ApplyOutbox(t, h.DB, relay)
	require.Zero(t, syncertest.Unapplied(t, h.DB))
	require.Equal(t, []models.Outcome{models.OutcomeUserLimit, models.OutcomeClaimed, models.OutcomeSoldOut},
		syncertest.OutcomesOf(h.Claim(id, syncertest.Ask("v", ""), syncertest.Ask("u", ""), syncertest.Ask("x", ""))))
	h.Sync()
	require.Empty(t, h.Compare(id).Differences)
}

// Consumers that are steadily behind never reach the newest tip of a stream; they do reach the one of the fence.
func TestProof_WaitsForTheTipOfTheFenceAndNotForTheNewest(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id, busy := h.Create(5, nil), h.Create(100, nil)
	h.Claim(id, syncertest.Ask("u", ""))
	h.Lose(id, syncertest.WholeCampaign)
	hydrator := h.Hydrator()
	for range 2 {
		_, err := hydrator.Hydrate(t.Context(), id)
		require.ErrorIs(t, err, residency.ErrUnsynced, "its claim is in the stream only")
	}
	h.Sync()
	h.Claim(busy, syncertest.Asks("b", 10)...)
	_, err := hydrator.Hydrate(t.Context(), id)
	require.NoError(t, err, "what came later is another campaign's")
	h.Sync()
	h.RequireBooks(id, 1)
}

// The claim stream of a Redis that was rolled back may look whole by now: claims that MySQL has and Redis lacks stop the campaign.
func TestReconcile_FencesACampaignThatRedisHoldsFewerClaimsOf(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(5, nil)
	h.Claim(id, syncertest.Asks("u", 3)...)
	h.Sync()
	require.NoError(t, h.Redis.HSet(t.Context(), h.Keys(id).State, "seq", 1, "taken", 1).Err(), "it forgot two claims")
	reconciler, maintainer := h.Leader()
	_, err := reconciler.Reconcile(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(1), h.Campaign(id).Epoch, "comparing repairs nothing")
	require.NoError(t, maintainer.Maintain(t.Context(), false))
	require.Greater(t, h.Campaign(id).Epoch, int64(1), "loaded again, from the rows")
	require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeClaimed, models.OutcomeSoldOut},
		syncertest.OutcomesOf(h.Claim(id, syncertest.Asks("v", 3)...)))
}
