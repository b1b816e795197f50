package reconcile_test

import (
	"slices"
	"testing"

	"dibs/internal/syncertest"
	"dibs/syncer/reconcile"

	"github.com/stretchr/testify/require"
)

func TestTurns_EachComesOnceALap(t *testing.T) {
	t.Parallel()
	ids := []string{"a", "b", "c", "d", "e"}
	require.Equal(t, [][]string{{"a", "b"}, {"c", "d"}, {"e", "a"}, {"b", "c"}}, reconcile.Turns(ids, 2, 4))
	require.Equal(t, [][]string{ids, ids}, reconcile.Turns(ids, 9, 2))
	require.Equal(t, [][]string{nil}, reconcile.Turns(nil, 2, 1))
}

// A round costs what moved, not what exists: of campaigns of which nothing is asked, some are compared in each round.
func TestReconciler_ARoundComparesWhatMovedAndTheOthersInTurn(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	r := h.Reconciler()
	const beyond = 20
	var ids []string
	for range reconcile.StillMost + beyond {
		id := h.Create(10, nil)
		require.NoError(t, h.Hydrate(id))
		ids = append(ids, id)
	}
	round := func() (recorded []string) {
		require.NoError(t, h.DB.Exec("DELETE FROM reconciliations").Error)
		_, err := r.Reconcile(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.DB.Raw("SELECT campaign_id FROM reconciliations ORDER BY campaign_id").Scan(&recorded).Error)
		return recorded
	}
	first := round()
	require.Len(t, first, reconcile.StillMost)
	others := slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(first, id) })

	h.Claim(first[0], syncertest.Ask("ada", ""))
	h.Claim(others[beyond-1], syncertest.Ask("ada", ""))
	h.Sync()
	want := append(slices.Clone(others), first[0])
	slices.Sort(want)
	require.Equal(t, want, round(), "what moved, and those that had no turn yet; nothing new is not written")
	require.Empty(t, round())

	require.Equal(t, reconcile.RestMost, reconcile.Rest(r), "nothing moved, so the books need not be read for a while")
	h.Claim(first[1], syncertest.Ask("ada", ""))
	h.Sync()
	require.Equal(t, []string{first[1]}, round(), "a flush ends the rest")
	for range reconcile.RestMost + 1 {
		require.Empty(t, round())
	}
	h.Exec("UPDATE lots SET claimed = claimed + 1 WHERE id = ?", others[0])
	for reconcile.Rest(r) > 0 {
		round()
	}
	round()
	require.Zero(t, reconcile.Rest(r), "while one differs each round reads")
}
