package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/testenv"
	"dibs/lua"
)

// A cluster master is killed under load. Its replica is promoted
// and it returns as a replica. Claims must go on, consumer and
// syncer must follow, no answered claim may be lost, and all
// data must agree. Tests of package redisconn limit the outage.
func TestClusterFailoverLosesNoAnswer(t *testing.T) {
	t.Parallel()
	s := newSystem(t, setup{
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

// The same for a primary watched by Sentinels.
func TestSentinelFailoverLosesNoAnswer(t *testing.T) {
	t.Parallel()
	s := newSystem(t, setup{
		sentinels: true, apis: 2, redisConf: []string{"repl-diskless-sync-delay 0"},
		settings: map[string]string{"DIBS_DURABILITY": "mysql"},
	})
	failsOver(t, s, func(campaign) (time.Time, *testenv.RedisServer) {
		s.redis.Kill()
		return s.sentinels.AwaitPromotion(s.redis), s.redis
	})
}

// failsOver kills a campaign's primary under load, and restarts
// it once another is promoted.
func failsOver(t *testing.T, s *system, kill func(c campaign) (promoted time.Time, dead *testenv.RedisServer)) {
	t.Helper()
	c := openCampaign(t, s.apis[0].url, campaign{Total: 100_000_000})
	rush := startRush(t, crowd.Plan{BaseURLs: s.urls(), CampaignID: c.ID, Users: 10_000_000, Connections: 20})
	rush.reaches(testenv.Pick(500, 20_000))
	promoted, dead := kill(c)
	dead.Start() // as a replica, which the durable mode needs in a cluster of pairs
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
