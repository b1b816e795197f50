package resolve_test

import (
	"strings"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/resolve"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// A writer whose clock is two hours ahead, or behind, does not keep its rows from the relay.
func TestRelay_AClockThatIsWrongDelaysNoRow(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		scripts, err := lua.New(testenv.Redis(t).Client(), lua.Options{})
		require.NoError(t, err)
		for _, off := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
			id := putEvent(t, db, "a")
			require.NoError(t, db.Model(&models.OutboxRow{}).Where("id = ?", id).Update("created_at", time.Now().Add(off).UTC()).Error)
		}
		n, err := resolve.NewRelay(db, scripts, nil).Relay(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, n)
	})
}

// A row that can't be applied is counted, and tried less and less often.
func TestRelay_ARowThatCannotBeAppliedIsCountedAndTriedAgainLater(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(5, nil)
	reg := prometheus.NewRegistry()
	relay := resolve.Eager(resolve.NewRelay(h.DB, h.Scripts, reg))
	h.Exec("INSERT INTO outbox (id, campaign_id, kind, payload, created_at) VALUES ('bad', ?, 'release', 'x', '2026-11-21 00:00:00.000')", id)
	_, err := relay.Relay(t.Context())
	require.ErrorContains(t, err, "can't be applied: bad")
	for range 3 {
		_, err = relay.Relay(t.Context())
		require.NoError(t, err, "it waits")
	}
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP dibs_outbox_damaged_rows Rows of outbox that can't be applied, by their content or by what Redis holds: people have to look. 0 on who does not lead.
# TYPE dibs_outbox_damaged_rows gauge
dibs_outbox_damaged_rows 1
`), "dibs_outbox_damaged_rows"))
	resolve.Hurry(relay)
	_, err = relay.Relay(t.Context())
	require.ErrorContains(t, err, "can't be applied: bad", "it is tried again")
	h.Exec("DELETE FROM outbox WHERE id = 'bad'")
	_, err = relay.Relay(t.Context())
	require.NoError(t, err)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP dibs_outbox_damaged_rows Rows of outbox that can't be applied, by their content or by what Redis holds: people have to look. 0 on who does not lead.
# TYPE dibs_outbox_damaged_rows gauge
dibs_outbox_damaged_rows 0
`), "dibs_outbox_damaged_rows"))
}

// Of a closed campaign no claim notices that Redis lost the users' records. Its releases do: it is loaded again, and they are applied.
func TestRelay_AClosedCampaignThatLostAKeyIsLoadedAgain(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	claims := h.Take(id, syncertest.Asks("u", 3)...)
	h.Shut(id)
	for _, claim := range claims[:2] {
		require.True(t, killedAt("committed", func(step func(string)) {
			_, _ = resolve.ResolverWithStep(resolver(h), step).Release(t.Context(), claim, "")
		}))
	}
	require.NoError(t, h.Redis.Del(t.Context(), h.Keys(id).Users).Err())
	r := relay(h)
	_, err := r.Relay(t.Context())
	require.ErrorIs(t, err, lua.ErrDamaged)
	require.Len(t, unapplied(t, h.DB), 2, "without a loader they wait")
	r.LoadBy(h.Loader())
	require.Eventually(t, func() bool {
		_, _ = r.Relay(t.Context())
		h.Sync()
		return len(unapplied(t, h.DB)) == 0
	}, time.Minute, time.Millisecond)
	h.Sync()
	require.Empty(t, h.Compare(id).Differences)
	state, err := h.Scripts.State(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, []int64{state.Taken, state.Released})
}

// A loader that gave up, or died, leaves its token. In a closed campaign no claim has the lot loaded.
func TestRelay_AClosedCampaignThatALoaderLeftIsLoaded(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	claims := h.Take(id, syncertest.Asks("u", 3)...)
	h.Shut(id)
	for _, how := range []string{lua.FenceAny, lua.FenceLeave} {
		_, errs := h.Scripts.Fence(t.Context(), "gone", how, []string{id})
		require.NoError(t, errs[0])
	}
	require.True(t, killedAt("committed", func(step func(string)) {
		_, _ = resolve.ResolverWithStep(resolver(h), step).Release(t.Context(), claims[0], "")
	}))
	r := relay(h)
	r.LoadBy(h.Loader())
	require.Eventually(t, func() bool {
		_, _ = r.Relay(t.Context())
		h.Sync()
		return len(unapplied(t, h.DB)) == 0
	}, time.Minute, time.Millisecond)
	state, err := h.Scripts.State(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []int64{2, 1}, []int64{state.Taken, state.Released})
	require.Empty(t, h.Compare(id).Differences)
}
