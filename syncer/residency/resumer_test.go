package residency_test

import (
	"strings"
	"testing"

	"dibs/internal/syncertest"
	"dibs/syncer/residency"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// The gauge says how many events wait, whichever process parked them, and until they are written or given up.
func TestResumer_CountsParkedEvents(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	reg := prometheus.NewRegistry()
	r := residency.NewResumer(h.Hydrator(), reg)
	parked := func(n string) {
		_, err := r.Resume(t.Context())
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
