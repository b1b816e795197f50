package residency_test

import (
	"strings"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/residency"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// The gauge says how many events wait, whichever process parked them, and until they are written or given up.
func TestMaintainer_CountsParkedEvents(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	reg := prometheus.NewRegistry()
	r := residency.NewMaintainer(h.Hydrator(), time.Hour, nil, reg)
	parked := func(n string) {
		_, err := r.Attend(t.Context(), true)
		require.NoError(t, err)
		require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP dibs_parked_events Events in parked_events that MySQL could not take and that were not given up.
# TYPE dibs_parked_events gauge
dibs_parked_events `+n+`
`), "dibs_parked_events"))
	}
	parked("0")
	h.Refusing()
	parked("1")
	h.Exec("UPDATE parked_events SET discarded_at = CURRENT_TIMESTAMP")
	parked("0")
}

// A process whose streams another process has stopped attends to their lots in its next round, not when its own time has come.
func TestMaintainer_AttendsAtOnceWhenAStreamHasANewGeneration(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	h.Claim(id, syncertest.Ask("u", ""))
	h.Sync()
	other := h.Maintainer()
	watchAll(t, other)
	require.NoError(t, other.Maintain(t.Context(), false))
	require.NoError(t, h.Redis.FlushAll(t.Context()).Err()) //nolint:forbidigo // its own Redis, and the fault itself
	require.Equal(t, 1, watchAll(t, h.Maintainer()))
	require.NoError(t, other.Maintain(t.Context(), false))
	require.Equal(t, models.ResidencyResident, h.Residency(id), "it is not due yet")
	require.Zero(t, watchAll(t, other))
	require.NoError(t, other.Maintain(t.Context(), false))
	require.Equal(t, models.ResidencyLost, h.Residency(id))
}

func watchAll(t *testing.T, m *residency.Maintainer) (broken int) {
	t.Helper()
	broken, err := m.Watch(t.Context())
	require.NoError(t, err)
	return broken
}

// Idle lots are for the leader.
func TestMaintainer_TheLeaderEvicts(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	id := h.Create(10, nil)
	m := syncertest.NewMaintainer(t, h.DB, h.Scripts, time.Millisecond)
	require.Eventually(t, func() bool {
		require.NoError(t, m.Maintain(t.Context(), false))
		require.Equal(t, models.ResidencyResident, h.Residency(id))
		require.NoError(t, h.Maintainer().Maintain(t.Context(), true), "it is not idle for so long")
		require.Equal(t, models.ResidencyResident, h.Residency(id))
		require.NoError(t, m.Maintain(t.Context(), true))
		return h.Residency(id) == models.ResidencyEvicted
	}, time.Minute, 5*time.Millisecond)
}

// goBack puts Redis back to the snapshot that it saved last.
func goBack(h *syncertest.Stack) {
	h.T.Helper()
	require.NoError(h.T, h.Redis.ConfigSet(h.T.Context(), "save", "").Err())
	h.Server.Kill()
	h.Server.Start()
}

func save(h *syncertest.Stack) { h.T.Helper(); require.NoError(h.T, h.Redis.Save(h.T.Context()).Err()) }

func watch(h *syncertest.Stack) (broken int) {
	h.T.Helper()
	broken, err := h.Maintainer().Watch(h.T.Context())
	require.NoError(h.T, err)
	return broken
}

// rollBack has 94 of 100 units claimed, of which Redis remembers 7, and MySQL all.
func rollBack(h *syncertest.Stack) (id string) {
	h.T.Helper()
	id = h.Create(100, nil)
	h.Claim(id, syncertest.Asks("early", 7)...)
	save(h)
	h.Claim(id, syncertest.Asks("tail", 87)...)
	h.Sync()
	require.Zero(h.T, watch(h))
	goBack(h)
	return id
}
