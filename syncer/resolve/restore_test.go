package resolve_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/syncertest"
	"dibs/models"
	"dibs/models/stored"
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
	all := [][2]func(h *syncertest.Stack, claim string){
		{redeem("a"), redeem("b")}, {redeem("c"), release}, {release, redeem("d")}, {release, release},
	}
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	claims := h.Take(id, syncertest.Asks("u", len(all)+1)...)[1:]
	h.Sync()
	dump := syncertest.DumpOf(t, h.DB)
	rows := func() (rows []stored.ClaimRow) {
		h.Sync()
		require.NoError(t, h.DB.Where("id IN ?", claims).Order("seq").Find(&rows).Error)
		return rows
	}
	for i, decisions := range all {
		decisions[0](h, claims[i])
	}
	won := rows()
	require.NoError(t, dump.Restore(h.DB))
	for i, decisions := range all {
		decisions[1](h, claims[i])
	}
	require.Equal(t, won, rows())
	require.Zero(t, syncertest.Unapplied(t, h.DB))
	var orders []string
	require.NoError(t, h.DB.Raw("SELECT order_id FROM claim_orders ORDER BY order_id").Scan(&orders).Error)
	require.Equal(t, []string{"a", "c"}, orders)
	var booked int
	require.NoError(t, h.DB.Raw("SELECT COUNT(*) FROM ledger_events").Scan(&booked).Error)
	require.Equal(t, len(all), booked)

	require.NoError(t, h.Maintainer().Attend(t.Context()))
	h.Sync()
	requireSame(h, id)
	require.EqualValues(t, 7, h.Campaign(id).Remaining, "two of five were released")
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
	var rows []string
	require.NoError(t, h.DB.Raw("SELECT CONCAT(status, ' ', decisions) FROM claims ORDER BY seq").Scan(&rows).Error)
	require.Equal(t, []string{"claimed 2", "redeemed 3", "redeemed 1", "claimed 1"}, rows)
	requireSame(h, id)
}
