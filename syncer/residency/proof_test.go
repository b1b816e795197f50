package residency_test

import (
	"testing"

	"dibs/internal/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/residency"

	"github.com/stretchr/testify/require"
)

// A Redis that was rolled back takes no claims from the moment that someone has looked at it, whatever else fails afterwards.
func TestLost_IsFencedBeforeItIsRecorded(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(5, nil)
	h.Claim(id, syncertest.Ask("u", ""), syncertest.Ask("v", ""))
	h.Sync()
	require.NoError(t, h.Redis.HSet(t.Context(), h.Keys(id).State, "seq", 1).Err(), "it forgot a claim")
	require.NoError(t, h.Hydrator().Examine(t.Context(), id))
	require.Equal(t, models.ResidencyLost, h.Residency(id))
	require.Equal(t, models.OutcomeAbsent, h.Claim(id, syncertest.Ask("w", ""))[0].Outcome)
}

// While a proof waits for the consumers the stream itself may be lost: what they acknowledged then proves nothing.
func TestProof_AStreamThatIsLostMeanwhileProvesNothing(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(5, nil)
	h.Claim(id, syncertest.Ask("u", ""))
	h.Lose(id, syncertest.WholeCampaign)
	_, err := residency.HydrateWithStep(t.Context(), h.Hydrator(), id, func(step string) {
		switch step {
		case "lost":
			h.Sync()
		case "acknowledged":
			setGeneration(h, "another")
		}
	})
	require.ErrorIs(t, err, campaigns.ErrLost)
	require.Empty(t, h.KeysOf(id), "nothing was loaded")
}

// A claim stream that can't be read proves nothing, and ends no process.
func TestProof_AStreamThatCannotBeRead(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(5, nil)
	h.Claim(id, syncertest.Ask("u", ""))
	h.Sync()
	h.Lose(id, syncertest.WholeCampaign)
	require.NoError(t, h.Redis.Set(t.Context(), lua.StreamKey(0), "no stream", 0).Err())
	_, err := h.Hydrator().Hydrate(t.Context(), id)
	require.ErrorContains(t, err, "WRONGTYPE")
	require.Empty(t, h.KeysOf(id), "nothing was loaded")
}

// A claim that gets its row between the snapshot of a load and its confirmation is not in what was loaded.
func TestRebuild_IsNotConfirmedWhenAClaimGetsItsRowMeanwhile(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(5, nil)
	replies := h.Claim(id, syncertest.Asks("u", 3)...)
	h.Sync()
	h.Lose(id, syncertest.WholeCampaign)
	_, err := residency.HydrateWithStep(t.Context(), h.Hydrator(), id, func(step string) {
		if step == "loaded" && h.Campaign(id).SyncedSeq == 3 {
			late := syncertest.ClaimsOf(id, 4, 1)
			late[0].Quantity = 1
			require.NoError(t, syncertest.SubmitAll(t.Context(), h.Writer, late))
		}
	})
	require.NoError(t, err)
	require.Len(t, replies, 3)
	h.RequireBooks(id, 4)
	require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeSoldOut},
		syncertest.OutcomesOf(h.Claim(id, syncertest.Asks("v", 2)...)))
}
