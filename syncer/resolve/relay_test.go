package resolve_test

import (
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
	row.CreatedAt = row.CreatedAt.Add(-2 * time.Millisecond) // rows of this very millisecond are left to their writer
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
		r := syncertest.NewRelay(t, resolve.RelayConfig{DB: db, Scripts: scripts, Registerer: reg})
		ids := []string{putEvent(t, db, "a"), putEvent(t, db, "b"), putEvent(t, db, "a")}
		// A newer program's row is nobody's to guess at, and blocks no other.
		require.NoError(t, db.Exec("UPDATE outbox SET kind = 'novelty' WHERE id = ?", ids[1]).Error)
		n, err := r.Relay(t.Context())
		require.ErrorContains(t, err, "unknown kind of row")
		require.Equal(t, 2, n)
		require.Equal(t, []string{ids[0], ids[2]}, streamed(t, server))
		require.Equal(t, int64(1), syncertest.Unapplied(t, db))
		require.NoError(t, db.Exec("UPDATE outbox SET kind = 'event' WHERE id = ?", ids[1]).Error)
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
	putEvent(t, h.Db, "a")
	r := syncertest.NewRelay(t, resolve.RelayConfig{DB: h.Db, Scripts: h.Scripts, After: time.Hour})
	n, err := r.Relay(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestRelay_WaitsForARedisThatIsAway(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	reg := prometheus.NewRegistry()
	r := syncertest.NewRelay(t, resolve.RelayConfig{DB: h.Db, Scripts: h.Scripts, Registerer: reg})
	id := putEvent(t, h.Db, "a")
	require.NoError(t, h.Db.Exec("UPDATE outbox SET created_at = '2026-01-01 00:00:00.000'").Error)
	require.NoError(t, h.Rdb.Rename(t.Context(), lua.StreamKey(0), "aside").Err())
	require.NoError(t, h.Rdb.Set(t.Context(), lua.StreamKey(0), "not a stream", 0).Err())
	_, err := r.Relay(t.Context())
	require.ErrorIs(t, err, lua.ErrUnavailable)
	require.Equal(t, int64(1), syncertest.Unapplied(t, h.Db))
	require.Greater(t, gaugeOf(t, reg, "dibs_outbox_oldest_seconds"), 3600.0)
	require.NoError(t, h.Rdb.Rename(t.Context(), "aside", lua.StreamKey(0)).Err())
	_, err = r.Relay(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{id}, streamed(t, h.Server))
	_, err = r.Relay(t.Context())
	require.NoError(t, err)
	require.Zero(t, gaugeOf(t, reg, "dibs_outbox_oldest_seconds"))
}

// Who dies after Redis was told and before MySQL knows leaves a row that is told again: at least once, under one id.
func TestRelay_ARowThatWasNotMarkedIsToldAgain(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	r := syncertest.NewRelay(t, resolve.RelayConfig{DB: h.Db, Scripts: h.Scripts})
	id := putEvent(t, h.Db, "a")
	require.Panics(t, func() {
		_, _ = resolve.RelayWithStep(r, func(name string) {
			if name == "told" {
				panic("killed")
			}
		}).Relay(t.Context())
	})
	_, err := r.Relay(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{id, id}, streamed(t, h.Server))
	require.Zero(t, syncertest.Unapplied(t, h.Db))
}

func TestRelay_PrunesWhatRedisHadLongAgo(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		ids := []string{putEvent(t, db, "a"), putEvent(t, db, "a"), putEvent(t, db, "a")}
		old, young := time.Now().Add(-25*time.Hour), time.Now().Add(-23*time.Hour)
		const layout = "2006-01-02 15:04:05.000"
		require.NoError(t, db.Exec("UPDATE outbox SET applied_at = ? WHERE id = ?", old.UTC().Format(layout), ids[0]).Error)
		require.NoError(t, db.Exec("UPDATE outbox SET applied_at = ? WHERE id = ?", young.UTC().Format(layout), ids[1]).Error)
		scripts, err := lua.New(testenv.Redis(t).Client(), lua.Options{})
		require.NoError(t, err)
		n, err := syncertest.NewRelay(t, resolve.RelayConfig{DB: db, Scripts: scripts}).Prune(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		var left []string
		require.NoError(t, db.Raw("SELECT id FROM outbox ORDER BY id").Scan(&left).Error)
		require.Equal(t, ids[1:], left)
	})
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
