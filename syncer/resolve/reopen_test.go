package resolve_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/syncertest"
	"dibs/models"
)

// A redeemed claim reopens when the order is refunded. A late
// repetition of that reverts no later redeem.
func TestReopen_TakesBackOneRedeem(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		h, ms := clocked(t, db)
		id := h.Create(10, hold(time.Minute))
		claim := h.Take(id, syncertest.Asks("u", 1)...)[0]
		r := resolver(h)
		reopen := func(order string, want models.Resolved) models.Claim {
			t.Helper()
			res, err := r.Reopen(t.Context(), claim, order, "refunded")
			require.NoError(t, err)
			require.Equal(t, want, res.Resolved)
			return res.Claim
		}
		redeem := func(order string, want models.Resolved) {
			t.Helper()
			res, err := r.Redeem(t.Context(), claim, order)
			require.NoError(t, err)
			require.Equal(t, want, res.Resolved)
		}
		reopen("a", models.ResolvedNotRedeemed)
		redeem("a", models.ResolvedNow)
		reopen("b", models.ResolvedAlreadyRedeemed)
		open := reopen("a", models.ResolvedNow)
		require.Equal(t, models.ClaimClaimed, open.Status)
		require.Empty(t, open.OrderID)
		require.WithinDuration(t, time.Now().Add(time.Minute), open.ExpiresAt.Time, 30*time.Second)
		reopen("a", models.ResolvedBefore)
		redeem("b", models.ResolvedNow)
		require.Equal(t, models.ClaimRedeemed, reopen("a", models.ResolvedBefore).Status, "the repetition is late")
		reopen("b", models.ResolvedNow)
		redeem("a", models.ResolvedNow)
		require.Equal(t, models.ClaimRedeemed, reopen("a", models.ResolvedBefore).Status, "one reopen for an order")

		other := h.Take(id, syncertest.Asks("v", 1)...)[0]
		_, err := r.Redeem(t.Context(), other, "c")
		require.NoError(t, err)
		_, err = r.Reopen(t.Context(), other, "c", "")
		require.NoError(t, err)
		ms.Add(3 * time.Minute.Milliseconds())
		require.Equal(t, 1, expire(h, expirer(h, 100)), "its hold began anew, and ended")
		claim = other
		reopen("c", models.ResolvedBefore)
		reopen("d", models.ResolvedAlreadyReleased)
		h.Sync()
		requireSame(h, id)
		require.EqualValues(t, 1, h.Campaign(id).Claimed)
	})
}

func TestExtend_UpToTheMost(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		h, ms := clocked(t, db)
		id := h.Create(10, hold(time.Minute))
		claims := h.Take(id, syncertest.Asks("u", 3)...)
		r := resolver(h)
		var made models.ClaimRow
		require.NoError(t, db.Where("id = ?", claims[0]).Take(&made).Error)
		extend := func(by time.Duration, key string, want models.Resolved, lasts time.Duration) {
			t.Helper()
			res, err := r.Extend(t.Context(), claims[0], by, key)
			require.NoError(t, err)
			require.Equal(t, want, res.Resolved)
			require.Equal(t, lasts, res.Claim.ExpiresAt.Sub(made.ClaimedAt))
		}
		extend(10*time.Second, "k", models.ResolvedNow, 70*time.Second)
		extend(10*time.Second, "k", models.ResolvedBefore, 70*time.Second)
		extend(10*time.Second, "l", models.ResolvedNow, 80*time.Second)
		extend(time.Hour, "", models.ResolvedNow, 2*time.Minute)
		extend(time.Hour, "", models.ResolvedBefore, 2*time.Minute)
		ms.Add(time.Minute.Milliseconds() + 1)
		require.Equal(t, 2, expire(h, expirer(h, 100)))
		ms.Add(time.Minute.Milliseconds())
		require.Equal(t, 1, expire(h, expirer(h, 100)))
		res, err := r.Extend(t.Context(), claims[0], time.Second, "")
		require.NoError(t, err)
		require.Equal(t, models.ResolvedAlreadyReleased, res.Resolved)
		forever := h.Take(h.Create(10, nil), syncertest.Asks("f", 1)...)[0]
		res, err = r.Extend(t.Context(), forever, time.Second, "")
		require.NoError(t, err)
		require.Equal(t, models.ResolvedNoHold, res.Resolved)
		h.Sync()
		requireSame(h, id)
	})
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
