package resolve_test

import (
	"testing"
	"time"

	"dibs/internal/testkit/syncertest"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/records"
	"dibs/syncer/resolve"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func relay(h *syncertest.Stack) *resolve.Relay {
	return resolve.Eager(resolve.NewRelay(h.DB, h.Scripts, nil))
}

func resolver(h *syncertest.Stack) *resolve.Resolver {
	return resolve.NewResolver(h.DB, relay(h), syncertest.Quiet())
}

// requireSame compares Redis, the counters
// and the rows of a campaign, with its users.
func requireSame(h *syncertest.Stack, campaignID string) {
	h.T.Helper()
	h.Sync()
	found := h.Compare(campaignID)
	require.Empty(h.T, found.Differences)
	require.NotNil(h.T, found.Drift)
	require.Zero(h.T, *found.Drift)
}

func TestResolver_EachAnswerOnEachStore(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		h, _ := clocked(t, db)
		id := h.Create(10, func(c *models.Campaign) { c.PerUser, c.HoldForMs = 2, 60_000 })
		ids := h.Take(id, syncertest.Ask("u", "k"), syncertest.Ask("u", ""), syncertest.Ask("v", ""))
		r := resolver(h)
		ctx := t.Context()

		res, err := r.Redeem(ctx, ids[0], "order-1")
		require.NoError(t, err)
		require.Equal(t, models.ResolvedNow, res.Resolved)
		require.Equal(t, []any{models.ClaimRedeemed, "order-1"}, []any{res.Claim.Status, res.Claim.OrderID})
		again, err := r.Redeem(ctx, ids[0], "order-1")
		require.NoError(t, err)
		require.Equal(t, models.Resolution{Resolved: models.ResolvedBefore, Claim: res.Claim}, again)
		shown, err := records.NewClaims(db).Claim(ctx, ids[0])
		require.NoError(t, err)
		require.Equal(t, res.Claim, shown)

		res, err = r.Release(ctx, ids[1], "changed my mind")
		require.NoError(t, err)
		require.Equal(t, []any{models.ResolvedNow, models.ClaimReleased, "changed my mind"}, []any{res.Resolved, res.Claim.Status, res.Claim.ReleaseReason})
		require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeUserLimit}, syncertest.OutcomesOf(h.Claim(id, syncertest.Ask("u", ""), syncertest.Ask("u", ""))))
		again, err = r.Release(ctx, ids[1], "other words")
		require.NoError(t, err)
		require.Equal(t, models.Resolution{Resolved: models.ResolvedBefore, Claim: res.Claim}, again)

		_, err = r.Redeem(ctx, uuid.NewString(), "order-1")
		require.ErrorIs(t, err, models.ErrNotFound)

		h.Sync()
		requireSame(h, id)
		require.Zero(t, syncertest.Unapplied(t, db))
		kinds := map[event.Type]int{}
		for _, e := range allEvents(h) {
			kinds[e.Type]++
		}
		require.Equal(t, map[event.Type]int{
			event.LotLoaded: 1, event.ClaimAccepted: 4, event.ClaimRedeemed: 1, event.ClaimReleased: 1,
		}, kinds)
	})
}

func allEvents(h *syncertest.Stack) (all []event.Event) {
	h.T.Helper()
	entries, err := h.Redis.XRange(h.T.Context(), lua.StreamKey(0), "-", "+").Result()
	require.NoError(h.T, err)
	for _, entry := range entries {
		e, err := event.Decode([]byte(entry.Values["payload"].(string)))
		require.NoError(h.T, err)
		all = append(all, e)
	}
	return all
}

func killedAt(step string, do func(step func(name string))) (died bool) {
	defer func() {
		if v := recover(); v != nil {
			if _, is := v.(syncertest.Died); !is {
				panic(v)
			}
			died = true
		}
	}()
	do(func(name string) {
		if name == step {
			panic(syncertest.Died{})
		}
	})
	return false
}

func relayAll(h *syncertest.Stack) {
	h.T.Helper()
	require.Eventually(h.T, func() bool {
		_, err := relay(h).Relay(h.T.Context())
		require.NoError(h.T, err)
		h.Sync()
		return syncertest.Unapplied(h.T, h.DB) == 0
	}, time.Minute, 5*time.Millisecond)
}
