package resolve_test

import (
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/resolve"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// putEvent writes an event of a campaign into the outbox and returns its id.
func putEvent(t testing.TB, db *gorm.DB, campaignID string) string {
	t.Helper()
	row, err := campaigns.NewOutboxRow(models.OutboxEvent, &models.Event{Type: models.EventCampaignClosed, CampaignID: campaignID})
	require.NoError(t, err)
	require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
		return campaigns.PutOutbox(t.Context(), tx.Statement.ConnPool, []models.OutboxRow{row})
	}))
	return row.ID
}

// streamed are the ids of the events in the claim stream, in order.
func streamed(t testing.TB, server *testenv.RedisServer) []string {
	t.Helper()
	entries, err := server.Client().XRange(t.Context(), lua.StreamKey(0), "-", "+").Result()
	require.NoError(t, err)
	var ids []string
	for _, entry := range entries {
		e, err := models.DecodeEvent([]byte(entry.Values["payload"].(string)))
		require.NoError(t, err)
		require.Equal(t, e.ID, entry.Values["_watermill_message_uuid"])
		ids = append(ids, e.ID)
	}
	return ids
}

func TestRelay_TellsWhatIsLeftOldestFirstAndOnce(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		server := testenv.Redis(t)
		scripts, err := lua.New(server.Client(), lua.Options{})
		require.NoError(t, err)
		reg := prometheus.NewRegistry()
		r := resolve.Eager(resolve.NewRelay(db, scripts, reg))
		ids := []string{putEvent(t, db, "a"), putEvent(t, db, "b"), putEvent(t, db, "a")}
		// A newer program's row is no one's to guess at, and blocks no other.
		require.NoError(t, db.Exec("UPDATE outbox SET kind = 'novelty' WHERE id = ?", ids[1]).Error)
		n, err := r.Relay(t.Context())
		require.ErrorContains(t, err, "unknown kind of row")
		require.Equal(t, 2, n)
		require.Equal(t, []string{ids[0], ids[2]}, streamed(t, server))
		require.Equal(t, int64(1), syncertest.Unapplied(t, db))
		require.NoError(t, db.Exec("UPDATE outbox SET kind = 'event' WHERE id = ?", ids[1]).Error)
		resolve.Hurry(r)
		for range 2 {
			_, err = r.Relay(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{ids[0], ids[2], ids[1]}, streamed(t, server))
		}
		require.Zero(t, syncertest.Unapplied(t, db))
	})
}

func TestRelay_LeavesYoungRowsToTheirWriter(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	putEvent(t, h.DB, "a")
	r := resolve.RelayAfter(resolve.NewRelay(h.DB, h.Scripts, nil), time.Hour)
	n, err := r.Relay(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestRelay_WaitsForARedisThatIsAway(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	reg := prometheus.NewRegistry()
	r := resolve.Eager(resolve.NewRelay(h.DB, h.Scripts, reg))
	id := putEvent(t, h.DB, "a")
	require.NoError(t, h.DB.Exec("UPDATE outbox SET created_at = '2026-01-01 00:00:00.000'").Error)
	require.NoError(t, h.Redis.Set(t.Context(), lua.StreamKey(0), "not a stream", 0).Err())
	_, err := r.Relay(t.Context())
	require.ErrorIs(t, err, lua.ErrUnavailable)
	require.Equal(t, int64(1), syncertest.Unapplied(t, h.DB))
	require.Greater(t, gaugeOf(t, reg, "dibs_outbox_oldest_seconds"), 3600.0)
	require.NoError(t, h.Redis.Del(t.Context(), lua.StreamKey(0)).Err())
	_, err = r.Relay(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{id}, streamed(t, h.Server))
	_, err = r.Relay(t.Context())
	require.NoError(t, err)
	require.Zero(t, gaugeOf(t, reg, "dibs_outbox_oldest_seconds"))
}

// unapplied are the ids of the rows that Redis has not had.
func unapplied(t testing.TB, db *gorm.DB) (ids []string) {
	t.Helper()
	require.NoError(t, db.Raw("SELECT id FROM outbox ORDER BY id").Scan(&ids).Error)
	return ids
}

func TestRelay_ABadRowDoesNotBlockTheOthersOfItsCampaign(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	var ids []string
	for range 5 {
		ids = append(ids, putEvent(t, h.DB, id))
	}
	h.Exec("UPDATE outbox SET kind = 'novelty' WHERE id = ?", ids[1])
	h.Exec("UPDATE outbox SET kind = 'release' WHERE id = ?", ids[3]) // its event is of something else
	n, err := relay(h).Relay(t.Context())
	require.ErrorContains(t, err, "unknown kind of row")
	require.ErrorContains(t, err, ids[3])
	require.Equal(t, 3, n)
	require.Equal(t, []string{ids[0], ids[2], ids[4]}, streamed(t, h.Server))
	require.Equal(t, []string{ids[1], ids[3]}, unapplied(t, h.DB))
}

// A release that contradicts what Redis holds stays in the outbox and is told; its neighbours in the same call are applied.
func TestRelay_ADamagedReleaseStaysAndItsNeighboursAreApplied(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	claims := h.Take(id, syncertest.Asks("u", 3)...)
	for _, claim := range claims {
		require.True(t, killedAt("committed", func(step func(string)) {
			_, _ = resolve.ResolverWithStep(resolver(h), step).Release(t.Context(), claim, "")
		}))
	}
	rows := unapplied(t, h.DB)
	require.Len(t, rows, 3)
	require.NoError(t, h.Redis.HDel(t.Context(), h.Keys(id).Users, "u-1").Err())
	n, err := relay(h).Relay(t.Context())
	require.ErrorContains(t, err, "redis does not hold claim "+claims[1]+" as mysql does")
	require.Equal(t, 2, n)
	require.Equal(t, rows[1:2], unapplied(t, h.DB))
	state, err := h.Scripts.State(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, []int64{state.Taken, state.Released})
}

// Who dies after Redis was told and before MySQL knows leaves a row that is told again: at least once, under one id.
func TestRelay_ARowThatWasNotMarkedIsToldAgain(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	r := relay(h)
	id := putEvent(t, h.DB, "a")
	require.Panics(t, func() {
		_, _ = resolve.RelayWithStep(relay(h), func(name string) {
			if name == "applied" {
				panic("killed")
			}
		}).Relay(t.Context())
	})
	_, err := r.Relay(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{id, id}, streamed(t, h.Server))
	require.Zero(t, syncertest.Unapplied(t, h.DB))
}

// gaugeOf is the value of a figure without labels.
func gaugeOf(t *testing.T, reg prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	require.Failf(t, "no such figure", name)
	return 0
}

// A redeem or a release is one commit: the rows of outbox that Redis has are deleted together, some moments later.
func TestRelay_DecisionsShareTheDeletionOfTheirRows(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, nil)
	claims := h.Take(id, syncertest.Asks("u", 20)...)
	var deletions atomic.Int64
	told := resolve.RelayWithStep(resolve.NewRelay(h.DB, h.Scripts, nil), func(name string) {
		if name == "marked" {
			deletions.Add(1)
		}
	})
	r := resolve.NewResolver(h.DB, told, syncertest.Quiet())
	for _, claim := range claims {
		_, err := r.Redeem(t.Context(), claim, "o")
		require.NoError(t, err)
	}
	for _, claim := range h.Take(id, syncertest.Asks("w", 20)...) {
		_, err := r.Release(t.Context(), claim, "")
		require.NoError(t, err)
	}
	require.NoError(t, told.DeletePublished(t.Context()))
	require.Zero(t, syncertest.Unapplied(t, h.DB))
	require.Less(t, deletions.Load(), int64(20))
	_, err := r.Redeem(t.Context(), h.Take(id, syncertest.Ask("v", ""))[0], "o")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return syncertest.Unapplied(t, h.DB) == 0 }, time.Minute, 5*time.Millisecond, "by itself")
	redeemed := 0
	for _, e := range allEvents(h) {
		if e.Type == models.EventClaimRedeemed {
			redeemed++
		}
	}
	require.Equal(t, 21, redeemed)
}
