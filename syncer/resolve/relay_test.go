package resolve_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/lua"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/campaigns"
	"dibs/syncer/resolve"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func putEvent(t testing.TB, db *gorm.DB, campaignID string) string {
	t.Helper()
	row, err := campaigns.NewOutboxRow(stored.OutboxEvent, &event.Event{Type: event.CampaignClosed, CampaignID: campaignID})
	require.NoError(t, err)
	require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
		return campaigns.PutOutbox(t.Context(), tx, []stored.OutboxRow{row})
	}))
	return row.ID
}

// Young rows are left to their writer. The rest is delivered, oldest
// first. A bad row is counted, and tried ever less often.
func TestRelay_TellsWhatIsLeftOldestFirstAndOnce(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		h, _ := clocked(t, db)
		told := func() (ids []string) {
			for _, e := range allEvents(h) {
				ids = append(ids, e.ID)
			}
			return ids
		}
		reg := prometheus.NewRegistry()
		r := resolve.Eager(resolve.NewRelay(db, h.Scripts, reg))
		ids := []string{putEvent(t, db, "a"), putEvent(t, db, "b"), putEvent(t, db, "a")}
		minuteAgo := time.Now().Add(-time.Minute).UTC().Format(sqlstore.TimeLayout)
		require.NoError(t, db.Exec("UPDATE outbox SET created_at = ?", minuteAgo).Error)
		n, err := resolve.RelayAfter(resolve.NewRelay(db, h.Scripts, nil), time.Hour).Relay(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		inTwoHours := time.Now().Add(2 * time.Hour).UTC().Format(sqlstore.TimeLayout) // by a clock that is wrong
		require.NoError(t, db.Exec("UPDATE outbox SET created_at = ? WHERE id = ?", inTwoHours, ids[2]).Error)
		// The row of a newer program is unknown, and blocks no other.
		require.NoError(t, db.Exec("UPDATE outbox SET kind = 'novelty' WHERE id = ?", ids[1]).Error)
		n, err = r.Relay(t.Context())
		require.ErrorContains(t, err, "unknown kind of row")
		require.Equal(t, 2, n)
		require.Equal(t, []string{ids[0], ids[2]}, told())
		_, err = r.Relay(t.Context())
		require.NoError(t, err, "the row waits")
		require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP dibs_outbox_damaged_rows Rows of outbox that can't be applied, by their content or by the data in Redis: an operator has to act. 0 unless this process leads.
# TYPE dibs_outbox_damaged_rows gauge
dibs_outbox_damaged_rows 1
`), "dibs_outbox_damaged_rows"))
		h.Sync()
		require.Equal(t, int64(1), syncertest.Unapplied(t, db))
		require.NoError(t, db.Exec("UPDATE outbox SET kind = 'event' WHERE id = ?", ids[1]).Error)
		resolve.Hurry(r)
		for range 2 {
			_, err = r.Relay(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{ids[0], ids[2], ids[1]}, told())
		}
		h.Sync()
		require.Zero(t, syncertest.Unapplied(t, db))
	})
}

func unapplied(t testing.TB, db *gorm.DB) (ids []string) {
	t.Helper()
	require.NoError(t, db.Raw("SELECT id FROM outbox ORDER BY id").Scan(&ids).Error)
	return ids
}

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
	h.Exec("INSERT INTO outbox (id, campaign_id, kind, payload, created_at)"+
		" VALUES ('bad', ?, 'release', 'x', '2026-11-21 00:00:00.000')", id)
	r := relay(h)
	n, err := r.Relay(t.Context())
	require.ErrorContains(t, err, "redis does not hold claim "+claims[1]+" as mysql does")
	require.ErrorContains(t, err, "can't be applied: bad")
	require.Equal(t, 2, n)
	h.Sync()
	require.Equal(t, []string{rows[1], "bad"}, unapplied(t, h.DB))
	state, err := h.Scripts.State(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, []int64{state.Taken, state.Released})
	h.Exec("DELETE FROM outbox")
	n, err = r.Relay(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
}

// Redis' reply confirms nothing: a row stays until MySQL applies the
// entry of its event. If Redis lost the entry, the row is sent again.
func TestRelay_ARowStaysUntilItsEntryIsApplied(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(100, nil)
	claim := h.Take(id, syncertest.Ask("u", ""))[0]
	told := relay(h)
	_, err := resolve.NewResolver(h.DB, told, syncertest.Quiet()).Redeem(t.Context(), claim, "o")
	require.NoError(t, err)
	redeemed := func() []redis.XMessage {
		all, err := h.Redis.XRange(t.Context(), lua.StreamKey(0), "-", "+").Result()
		require.NoError(t, err)
		return slices.DeleteFunc(all, func(m redis.XMessage) bool {
			return !strings.Contains(m.Values["payload"].(string), string(event.ClaimRedeemed))
		})
	}
	require.Len(t, redeemed(), 1)
	require.EqualValues(t, 1, syncertest.Unapplied(t, h.DB), "Redis has it, and may lose it")
	require.NoError(t, h.Redis.XDel(t.Context(), lua.StreamKey(0), redeemed()[0].ID).Err())
	h.Sync()
	require.EqualValues(t, 1, syncertest.Unapplied(t, h.DB), "Redis lost it")
	n, err := told.Relay(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	n, err = told.Relay(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "its entry waits for MySQL")
	require.Len(t, redeemed(), 1)
	h.Sync()
	require.Zero(t, syncertest.Unapplied(t, h.DB))
}

// No claim of a closed campaign detects that Redis lost the users'
// records, or that a loader left its token. Its releases do: it is
// loaded again, and they are applied.
func TestRelay_AClosedCampaignIsLoadedAgain(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	for name, harm := range map[string]func(id string) error{
		"it lost a key": func(id string) error { return h.Redis.Del(t.Context(), h.Keys(id).Users).Err() },
		"a loader left it": func(id string) error {
			_, taken := h.Scripts.Fence(t.Context(), "gone", lua.FenceAny, []string{id})
			_, left := h.Scripts.Fence(t.Context(), "gone", lua.FenceLeave, []string{id})
			return errors.Join(taken[0], left[0])
		},
	} {
		id := h.Create(10, nil)
		claims := h.Take(id, syncertest.Asks("u", 3)...)
		h.Shut(id)
		for _, claim := range claims[:2] {
			require.True(t, killedAt("committed", func(step func(string)) {
				_, _ = resolve.ResolverWithStep(resolver(h), step).Release(t.Context(), claim, "")
			}))
		}
		require.NoError(t, harm(id), name)
		r := relay(h)
		_, _ = r.Relay(t.Context())
		require.Len(t, unapplied(t, h.DB), 2, "without a loader they wait")
		r.LoadBy(h.Loader())
		require.Eventually(t, func() bool {
			_, _ = r.Relay(t.Context())
			h.Sync()
			return len(unapplied(t, h.DB)) == 0
		}, time.Minute, time.Millisecond, name)
		require.Empty(t, h.Compare(id).Differences)
		state, err := h.Scripts.State(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []int64{1, 2}, []int64{state.Taken, state.Released}, name)
	}
}
