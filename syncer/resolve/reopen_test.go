package resolve_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/testkit/syncertest"
	"dibs/models"
	"dibs/models/stored"
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

		claim = h.Take(id, syncertest.Asks("v", 1)...)[0]
		redeem("c", models.ResolvedNow)
		reopen("c", models.ResolvedNow)
		ms.Add(3 * time.Minute.Milliseconds())
		require.Equal(t, 1, expire(h, expirer(h, 100)), "its hold began anew, and ended")
		reopen("c", models.ResolvedBefore)
		reopen("d", models.ResolvedAlreadyReleased)
		h.Sync()
		requireSame(h, id)
		require.EqualValues(t, 1, h.Campaign(id).Claimed)
	})
}

// The clock of the process is an hour behind Redis', by which holds end.
func TestReopen_AHoldStartsByTheClockOfClaims(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		h, ms := clocked(t, db)
		ms.Add(time.Hour.Milliseconds())
		id := h.Create(10, hold(time.Minute))
		claim := h.Take(id, syncertest.Asks("u", 1)...)[0]
		r := resolver(h)
		_, err := r.Redeem(t.Context(), claim, "o")
		require.NoError(t, err)
		ms.Add(10 * time.Minute.Milliseconds())
		res, err := r.Reopen(t.Context(), claim, "o", "")
		require.NoError(t, err)
		require.Equal(t, ms.Load()+time.Minute.Milliseconds(), res.Claim.ExpiresAt.UnixMilli())
		h.Sync()
		require.Zero(t, expire(h, expirer(h, 100)))
	})
}

func TestExtend_UpToTheMost(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		h, ms := clocked(t, db)
		id := h.Create(10, hold(time.Minute))
		claims := h.Take(id, syncertest.Asks("u", 3)...)
		r := resolver(h)
		var made stored.ClaimRow
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
