package resolve_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/resolve"
	"dibs/syncer/writer"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// manyHolds makes campaigns that Redis holds and each of which has so many claims.
func manyHolds(t testing.TB, h *syncertest.Stack, ms *atomic.Int64, held, claims int) (ids []string) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(8)
	ids = make([]string, held)
	repository := campaigns.New(h.DB, h.Scripts, syncertest.Quiet())
	loader := h.Loader()
	metas := make([]lua.Meta, held)
	for i := range ids {
		c := syncertest.CampaignOf(testenv.UniqueID(t, "c"), int64(claims))
		c.HoldForMs = time.Minute.Milliseconds()
		ids[i] = c.ID
		g.Go(func() error {
			_, _, err := repository.Create(t.Context(), c)
			return err
		})
	}
	require.NoError(t, g.Wait())
	h.Sync()
	for i, id := range ids {
		var err error
		metas[i], err = loader.Load(t.Context(), id)
		require.NoError(t, err)
		h.Sync()
	}
	for _, meta := range metas {
		_, _, err := h.Scripts.Claim(t.Context(), meta, syncertest.Asks("u", claims))
		require.NoError(t, err)
	}
	w, err := writer.New(writer.Config{DB: h.DB, Logger: syncertest.Quiet()})
	require.NoError(t, err)
	require.NoError(t, syncertest.SubmitAll(t.Context(), w, unsynced(h)))
	require.NoError(t, w.Close(t.Context()))
	ms.Add(time.Minute.Milliseconds())
	return ids
}

// Campaigns share statements and transactions, and a campaign with thousands of due claims does not keep them waiting.
func TestExpirer_ManyCampaignsShareTransactions(t *testing.T) {
	t.Parallel()
	h, ms := clocked(t, syncertest.OpenServer(t))
	busy := h.Create(5000, hold(time.Minute))
	for i := range 5 {
		h.Take(busy, syncertest.Asks(fmt.Sprint("busy", i), 1000)...)
	}
	ms.Add(1)
	ids := manyHolds(t, h, ms, 250, 1)
	turns, committed, allBack := 0, 0, 0
	e := resolve.ExpirerWithStep(expirer(h, resolve.ExpireBatch), func(name string) {
		switch name {
		case "turn":
			turns++
		case "committed":
			committed++
			var back int
			require.NoError(t, h.DB.Raw("SELECT COUNT(DISTINCT campaign_id) FROM claims WHERE status = 'expired'").Scan(&back).Error)
			if allBack == 0 && back == len(ids)+1 {
				allBack = committed
			}
		}
	})
	require.Equal(t, 5250, expire(h, e))
	require.Equal(t, 3, allBack, "transactions until each of 251 campaigns had its turn")
	require.Less(t, turns, 30)
	for _, id := range append(ids[:10], busy) {
		requireSame(h, id)
	}
}

// The reads of each round go by an index, and look at what is due and nothing else.
func TestExpirer_ReadsByAnIndex(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	cursors := make([]models.HoldCursor, 3000)
	for i := range cursors {
		cursors[i] = models.HoldCursor{CampaignID: fmt.Sprint("c", i), DueMs: new(int64(90_000))}
	}
	*cursors[1].DueMs = 1000
	*cursors[2].DueMs = 1000
	require.NoError(t, db.CreateInBatches(cursors, 1000).Error)
	held := make([]models.ClaimRow, 5000)
	for i := range held {
		held[i] = models.ClaimRow{
			ID: uuid.NewString(), CampaignID: fmt.Sprint("c", 1+i%2), Seq: int64(1 + i/2), UserID: "u", Quantity: 1,
			Status: models.ClaimRedeemed, ClaimedAt: time.Now(), SyncedAt: time.Now(),
		}
	}
	require.NoError(t, db.CreateInBatches(held, 1000).Error)
	require.NoError(t, db.Exec("ANALYZE TABLE hold_cursors, claims").Error)
	for _, step := range syncertest.Explain(t, db, nil, resolve.DueHolds, 2000, 100) {
		if step.Table == "h" {
			require.Equal(t, "hold_cursors_due", step.Key)
			require.LessOrEqual(t, step.Rows, int64(2))
		}
	}
	query, args := resolve.WalkQuery(db, "c1", "c2")
	for _, step := range syncertest.Explain(t, db, nil, query, args...) {
		if step.Table == "claims" {
			require.Equal(t, "claims_place", step.Key)
		}
	}
}

// BenchmarkExpirer times due claims that are spread over many campaigns, one or a few each, and those of one campaign.
func BenchmarkExpirer(b *testing.B) {
	for _, spread := range []struct{ campaigns, claims int }{{2000, 1}, {500, 10}, {1, 5000}} {
		b.Run(fmt.Sprintf("%d campaigns of %d", spread.campaigns, spread.claims), func(b *testing.B) {
			h, ms := clocked(b, syncertest.OpenServer(b))
			var took time.Duration
			expired := 0
			for range b.N {
				if spread.campaigns == 1 {
					id := h.Create(int64(spread.claims), hold(time.Minute))
					for i := range spread.claims / 1000 {
						h.Take(id, syncertest.Asks(fmt.Sprint(i), 1000)...)
					}
					ms.Add(time.Minute.Milliseconds())
				} else {
					manyHolds(b, h, ms, spread.campaigns, spread.claims)
				}
				started := time.Now()
				expired += expire(h, expirer(h, resolve.ExpireBatch))
				took += time.Since(started)
			}
			b.ReportMetric(float64(expired)/took.Seconds(), "claims/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
