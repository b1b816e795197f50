package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/internal/redisconn"
	"dibs/internal/testenv"
	"dibs/lua"
)

// pair is a system on a Redis with a replica, behind one address
// that a failover moves.
type pair struct {
	*system
	replica *testenv.RedisServer
	address *toxiproxy.Proxy
}

func newPair(t *testing.T, settings map[string]string) *pair {
	t.Helper()
	p := &pair{}
	p.system = newSystem(t, setup{
		apis: 2, redisConf: []string{"repl-diskless-sync-delay 0"}, settings: settings,
		allRedis: func(url string) string {
			addr := strings.TrimSuffix(strings.TrimPrefix(url, "redis://"), "/0")
			p.replica = testenv.Redis(t, "replicaof "+strings.Replace(addr, ":", " ", 1))
			awaitReplica(t, url)
			p.address = testenv.Proxy(t, addr)
			return "redis://" + p.address.Listen
		},
	})
	return p
}

// promote makes the replica an independent primary, which gets
// nothing more from the old one.
func (p *pair) promote() redis.UniversalClient {
	p.t.Helper()
	rdb, err := redisconn.Connect(p.replica.URL())
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = rdb.Close() })
	require.NoError(p.t, rdb.Do(p.t.Context(), "replicaof", "no", "one").Err())
	return rdb
}

// failOver points the address at the replica; the primary is dead.
func (p *pair) failOver(rdb redis.UniversalClient) {
	p.t.Helper()
	p.address.Stop()
	p.address.Upstream = p.replica.Addr()
	require.NoError(p.t, p.address.Start())
	scripts, err := lua.New(rdb, lua.Options{Partitions: p.partitions})
	require.NoError(p.t, err)
	p.rdb, p.scripts = rdb, scripts
}

// After replication stopped, 500 more claims are answered, then the replica
// takes over. It must be found stale, go on within about a second and sell
// exactly the rest. The lost claims must be counted.
func TestFailoverToALaggingReplicaSellsNothingTwice(t *testing.T) {
	t.Parallel()
	for name, synced := range map[string]bool{"MySQL has all of it": true, "MySQL lacks it, too": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, nil)
			c := openCampaign(t, p.apis[0].url, campaign{Total: 1_500, PerUser: 1})
			before := startRush(t, crowd.Plan{BaseURLs: p.urls(), CampaignID: c.ID, Users: 300, Connections: 20}).wait()
			p.checkBooks(c, before, false)
			if !synced {
				p.consumers[0].kill9()
			}
			rdb := p.promote()
			more := startRush(t, crowd.Plan{BaseURLs: p.urls(), CampaignID: c.ID, Users: 500, Connections: 20, UserID: named("more")}).wait()
			require.Equal(t, 500, more.Accepted)
			if synced {
				p.checkBooks(c, merged(before, more), false)
			}
			p.redis.Kill()
			p.failOver(rdb)
			if !synced {
				p.consumers[0].restart()
			}
			back := time.Now()
			got := p.firstYes(c, "prober")
			went := time.Since(back)
			require.Less(t, went, goesOnWithin)
			require.Greater(t, got.claim(t).Seq, int64(800), got.body)
			late := startRush(t, crowd.Plan{BaseURLs: p.urls(), CampaignID: c.ID, Users: 1_400, Connections: 20, UserID: named("late")}).wait()
			book1(t, &late, got)
			lost, withheld := p.requireNoneTooMany(c, merged(before, more, late))
			if synced {
				require.Zero(t, lost)
				require.Zero(t, withheld)
			} else {
				require.Equal(t, int64(500), lost)
				require.Equal(t, int64(500), withheld)
			}
			t.Logf("claims went on after %s, %d of %d answered claims lost", went.Round(time.Millisecond), lost, before.Accepted+more.Accepted)
		})
	}
}

func named(prefix string) func(user int) string {
	return func(user int) string { return fmt.Sprintf("%s-%d", prefix, user) }
}

// awaitReplica waits until a primary lists a replica.
func awaitReplica(t *testing.T, url string) {
	t.Helper()
	rdb, err := redisconn.Connect(url)
	require.NoError(t, err)
	defer func() { _ = rdb.Close() }()
	require.Eventually(t, func() bool {
		info, err := rdb.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "state=online")
	}, upTimeout, pollEvery)
}
