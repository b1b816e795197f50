package shards

import (
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// figures are the values of all series, by name and labels.
func figures(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	all := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return all
}

func TestMovesAreCountedByTheNumberOfTheirShard(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		rdb, err := lua.Connect(testenv.SharedRedis(t).URL())
		require.NoError(t, err)
		t.Cleanup(func() { _ = rdb.Close() })
		scripts, reg := syncertest.ScriptsOn(t, rdb, syncertest.Partitions), prometheus.NewRegistry()
		c := syncertest.CampaignOf(testenv.UniqueID(t, "c"), 100)
		c.Shards = 2
		_, _, err = syncertest.NewCampaigns(t, db, scripts).Create(t.Context(), c)
		require.NoError(t, err)
		m := New(db, scripts, syncertest.NewHydrator(t, db, scripts), syncertest.Quiet(), reg)
		_, err = m.Refill(t.Context(), c.ID, models.Need{Shard: 2, Units: 90})
		require.NoError(t, err)
		got := figures(t, reg)
		require.InDelta(t, 90-25, got["dibs_shard_moved_units_total grant 2"], 0)
		require.InDelta(t, 1, got["dibs_shard_moves_total recall 1"], 0, "what the reserve lacks")
		require.InDelta(t, 90-75, got["dibs_shard_moved_units_total recall 1"], 0)

		_, err = m.Check(t.Context())
		require.NoError(t, err)
		require.Zero(t, figures(t, reg)["dibs_shard_moves_open"])
		m.inTransit[pair{campaignID: c.ID, from: 0, to: 1}] = transit{since: time.Now().Add(-time.Minute), upto: 1}
		m.measure()
		got = figures(t, reg)
		require.InDelta(t, 1, got["dibs_shard_moves_open"], 0)
		require.InDelta(t, 60, got["dibs_shard_moves_oldest_seconds"], 30)
		m.ResetMetrics()
		require.Zero(t, figures(t, reg)["dibs_shard_moves_oldest_seconds"])
	})
}
