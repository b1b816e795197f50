package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/models"
)

// TestTheLastUnitsOnSlowDisks: a Redis that syncs its file each second can't tell when a recall is on the disk, so each waits for
// seconds. All shards are asked at once: fifteen that are asked one after the other take 45 s.
func TestTheLastUnitsOnSlowDisks(t *testing.T) {
	t.Parallel()
	s := newSystem(t, wishes{apis: 2, partitions: 16, redisConf: []string{"appendonly yes", "appendfsync everysec"}})
	total := testenv.Pick(480, 3200)
	sl := s.sell(t, int64(total), 16, 1, onlyOne)
	started := time.Now()
	sl.run(16)
	if !testenv.Soak() {
		require.Less(t, time.Since(started), 40*time.Second)
	}
	sl.requireExact()
	slices.SortFunc(sl.claims, func(a, b models.Claim) int { return a.ClaimedAt.Compare(b.ClaimedAt.Time) })
	last := func(percent int) time.Duration {
		return sl.claims[total-1].ClaimedAt.Sub(sl.claims[total-total*percent/100].ClaimedAt.Time)
	}
	t.Logf("%d units in %s, the last 1 %% in %s, the last 50 %% in %s", total, time.Since(started).Round(time.Millisecond), last(1), last(50))
}
