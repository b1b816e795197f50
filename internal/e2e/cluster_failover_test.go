package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
	"dibs/lua"
)

// TestClusterFailoverLosesNoAnswer kills a master of a Redis Cluster in
// mid-rush. A replica is promoted, the dead one comes back as its replica,
// claims of the campaign go on, consumer and syncer follow, no answered claim
// is lost, and the books agree. How soon claims go on is held in package lua.
func TestClusterFailoverLosesNoAnswer(t *testing.T) {
	t.Parallel()
	s := newSystem(t, wishes{
		masters: 3, replicated: true, partitions: 8, apis: 2, redisConf: []string{"repl-diskless-sync-delay 0"},
		settings: map[string]string{"DIBS_DURABILITY": "mysql"},
	})
	stream := func(c campaign) string { return lua.StreamKey(lua.PartitionOf(c.ID, s.partitions)) }
	failsOver(t, s, func(c campaign) (time.Time, *testenv.RedisServer) {
		master := s.cluster.MasterOf(stream(c))
		master.Kill()
		return s.cluster.AwaitPromotion(master, stream(c)), master
	})
}

// TestSentinelFailoverLosesNoAnswer does the same to a primary that Sentinels
// watch.
func TestSentinelFailoverLosesNoAnswer(t *testing.T) {
	t.Parallel()
	s := newSystem(t, wishes{
		sentinels: true, apis: 2, redisConf: []string{"repl-diskless-sync-delay 0"},
		settings: map[string]string{"DIBS_DURABILITY": "mysql"},
	})
	failsOver(t, s, func(campaign) (time.Time, *testenv.RedisServer) {
		s.redis.Kill()
		return s.sentinels.AwaitPromotion(s.redis), s.redis
	})
}

// failsOver has the primary of a campaign killed in mid-rush, and started again
// once another is promoted.
func failsOver(t *testing.T, s *system, kill func(c campaign) (promoted time.Time, dead *testenv.RedisServer)) {
	t.Helper()
	c := openCampaign(t, s.apis[0].url, campaign{Total: 100_000_000})
	rush := startRush(t, crowd.Plan{BaseURLs: s.urls(), CampaignID: c.ID, Users: 10_000_000, Connections: 20})
	rush.reaches(testenv.Pick(500, 20_000))
	promoted, dead := kill(c)
	dead.Start() // as a replica, which a cluster of pairs needs for the durable mode
	s.firstYes(c, "patient")
	t.Logf("claims went on %s after the promotion", time.Since(promoted).Round(time.Millisecond))
	rush.reaches(testenv.Pick(1_000, 40_000))
	tally := rush.breakOff()
	eventually(t, drainWithin, "MySQL does not get there", func() bool {
		state, err := s.scripts.State(t.Context(), c.ID)
		var synced int64
		return err == nil && s.db.QueryRowContext(t.Context(), "SELECT synced_seq FROM campaigns WHERE id = ?", c.ID).Scan(&synced) == nil &&
			synced == state.Seq
	})
	s.requireRows(c, tally)
	require.Equal(t, exitOK, runDibs(t, s.settings, "reconcile").code)
}
