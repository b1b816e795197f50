package syncer_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/syncertest"
	"dibs/models"
	"dibs/syncer/resolve"
	"dibs/syncer/shards"
)

func TestSyncer_ASecondReadsNoIdleCampaign(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	const idle = 3000
	campaigns := make([]models.Campaign, idle)
	for i := range campaigns {
		campaigns[i] = syncertest.CampaignOf(fmt.Sprintf("idle-%04d", i), 10)
	}
	syncertest.AddCampaigns(t, h.DB, campaigns...)
	h.Exec("UPDATE lots SET residency = ?, epoch = 1", models.ResidencyResident)
	h.Exec("ANALYZE TABLE definitions, lots")
	pool, err := h.DB.DB()
	require.NoError(t, err)
	pool.SetMaxOpenConns(1) // counters are a connection's
	relay := resolve.NewRelay(h.DB, h.Scripts, nil)
	maintainer, expirer := h.Maintainer(), resolve.NewExpirer(relay, nil, nil)
	finalizer := resolve.NewFinalizer(relay, h.Loader(), clockwork.NewRealClock(), nil)
	for name, job := range map[string]func(ctx context.Context) (int, error){
		"complete streams": func(ctx context.Context) (int, error) { return 0, maintainer.Complete(ctx) }, "expire": expirer.Expire, "finalize": finalizer.Finalize,
		"check shards": shards.New(h.DB, h.Scripts, h.Loader(), nil).Check,
	} {
		call := func() {
			_, err := job(t.Context())
			require.NoError(t, err, name)
		}
		call() // what a process does once
		before := rowsRead(t, h)
		call()
		require.Less(t, rowsRead(t, h)-before, int64(100), name)
	}
}

func rowsRead(t *testing.T, h *syncertest.Stack) (sum int64) {
	t.Helper()
	var counters []struct {
		VariableName string
		Value        int64
	}
	require.NoError(t, h.DB.Raw("SHOW SESSION STATUS WHERE Variable_name IN ('Handler_read_first', 'Handler_read_key', 'Handler_read_last',"+
		" 'Handler_read_next', 'Handler_read_prev', 'Handler_read_rnd')").Scan(&counters).Error)
	require.Len(t, counters, 6)
	for _, counter := range counters {
		sum += counter.Value
	}
	return sum
}
