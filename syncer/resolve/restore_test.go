package resolve_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/offset"
)

// A restored MySQL decides a claim otherwise before it has read on. The first
// decision in the stream wins, and neither server keeps the other.
func TestRestore_TheFirstDecisionInTheStreamWins(t *testing.T) {
	t.Parallel()
	redeem := func(order string) func(h *syncertest.Stack, claim string) {
		return func(h *syncertest.Stack, claim string) {
			res, err := resolver(h).Redeem(h.T.Context(), claim, order)
			require.NoError(h.T, err)
			require.Equal(h.T, models.ResolvedNow, res.Resolved)
		}
	}
	release := func(h *syncertest.Stack, claim string) {
		res, err := resolver(h).Release(h.T.Context(), claim, "changed their mind")
		require.NoError(h.T, err)
		require.Equal(h.T, models.ResolvedNow, res.Resolved)
	}
	for name, decisions := range map[string][2]func(h *syncertest.Stack, claim string){
		"redeemed, redeemed": {redeem("a"), redeem("b")},
		"redeemed, released": {redeem("a"), release},
		"released, redeemed": {release, redeem("b")},
		"released, released": {release, release},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := syncertest.NewStack(t)
			id := h.Create(10, nil)
			claim := h.Take(id, syncertest.Asks("u", 3)...)[1]
			h.Sync()
			dump := syncertest.DumpOf(t, h.DB)
			decisions[0](h, claim)
			h.Sync()
			var won models.ClaimRow
			require.NoError(t, h.DB.Where("id = ?", claim).Take(&won).Error)
			require.EqualValues(t, 1, won.DecisionsMade())

			require.NoError(t, dump.Restore(h.DB))
			decisions[1](h, claim)
			h.Sync()
			var is models.ClaimRow
			require.NoError(t, h.DB.Where("id = ?", claim).Take(&is).Error)
			require.Equal(t, won, is)
			require.Zero(t, syncertest.Unapplied(t, h.DB))
			var orders []string
			require.NoError(t, h.DB.Raw("SELECT order_id FROM claim_orders").Scan(&orders).Error)
			require.Equal(t, won.OrderID != nil, len(orders) == 1)
			var booked int
			require.NoError(t, h.DB.Raw("SELECT COUNT(*) FROM ledger_events").Scan(&booked).Error)
			require.Equal(t, 1, booked)

			require.NoError(t, h.Maintainer().Attend(t.Context()))
			h.Sync()
			requireSame(h, id)
			left := int64(7)
			if !won.Status.Live() {
				left++
			}
			require.Equal(t, left, h.Campaign(id).Remaining)
		})
	}
}

// A process knows that MySQL had more, so it decides nothing until the
// restored MySQL has read on. Every other order for a claim that was
// redeemed since the dump is refused.
func TestRestore_NoClaimIsRedeemedTwice(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(50, nil)
	claims := h.Take(id, syncertest.Asks("u", 40)...)
	dump := syncertest.DumpOf(t, h.DB)
	r := resolver(h)
	for i, claim := range claims {
		_, err := r.Redeem(t.Context(), claim, fmt.Sprint("o-", i))
		require.NoError(t, err)
	}
	h.Sync()
	offsets, err := offset.Read(t.Context(), h.DB, 0)
	require.NoError(t, err)
	require.NoError(t, h.Scripts.Signal(t.Context(), offsets))
	h.Scripts.Signals(t.Context()) // as each API process does five times a second

	require.NoError(t, dump.Restore(h.DB))
	_, err = r.Redeem(t.Context(), claims[0], "another")
	require.ErrorIs(t, err, models.ErrBehind)
	results := make([]models.Resolved, len(claims))
	var asking sync.WaitGroup
	for i, claim := range claims {
		asking.Go(func() {
			res, err := r.Redeem(t.Context(), claim, "another")
			if err == nil {
				results[i] = res.Resolved
			}
		})
	}
	h.Sync()
	asking.Wait()
	for _, result := range results {
		require.Equal(t, models.ResolvedAlreadyRedeemed, result)
	}
	requireSame(h, id)
}

func TestRestore_ReopenedAndExtendedClaimsComeBack(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, hold(time.Hour))
	claims := h.Take(id, syncertest.Asks("u", 4)...)
	dump := syncertest.DumpOf(t, h.DB)
	r := resolver(h)
	for i, claim := range claims[:3] {
		_, err := r.Redeem(t.Context(), claim, fmt.Sprint("o", i))
		require.NoError(t, err)
	}
	_, err := r.Reopen(t.Context(), claims[0], "o0", "refunded")
	require.NoError(t, err)
	_, err = r.Reopen(t.Context(), claims[1], "o1", "refunded")
	require.NoError(t, err)
	_, err = r.Redeem(t.Context(), claims[1], "again")
	require.NoError(t, err)
	_, err = r.Extend(t.Context(), claims[3], time.Minute, "k")
	require.NoError(t, err)
	h.Sync()
	after := syncertest.DumpOf(t, h.DB)
	require.NoError(t, dump.Restore(h.DB))
	h.Sync()
	again := syncertest.DumpOf(t, h.DB)
	for _, table := range []string{"claim_orders", "hold_dues", "hold_extensions", "outbox"} {
		require.ElementsMatch(t, after[table], again[table], table)
	}
	var rows []models.ClaimRow
	require.NoError(t, h.DB.Order("seq").Find(&rows).Error)
	require.Equal(t, []models.ClaimStatus{models.ClaimClaimed, models.ClaimRedeemed, models.ClaimRedeemed, models.ClaimClaimed},
		[]models.ClaimStatus{rows[0].Status, rows[1].Status, rows[2].Status, rows[3].Status})
	require.Equal(t, []int64{2, 3, 1, 1}, []int64{
		rows[0].DecisionsMade(), rows[1].DecisionsMade(), rows[2].DecisionsMade(), rows[3].DecisionsMade(),
	})
	requireSame(h, id)
}
