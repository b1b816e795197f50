package testenv

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
)

// ReplicatedCluster is a Redis Cluster with one replica per
// master, so that a master may die.
type ReplicatedCluster struct {
	t       testing.TB
	masters []*RedisServer
	nodes   []*RedisServer // masters, then replicas
}

// RedisReplicatedCluster starts a cluster of masters with a replica each, and
// ends it with the test. The cluster declares a master dead after
// nodeTimeout. Each conf is a redis.conf line for every node.
func RedisReplicatedCluster(t testing.TB, masters int, nodeTimeout time.Duration, conf ...string) *ReplicatedCluster {
	t.Helper()
	c := &ReplicatedCluster{t: t}
	conf = append([]string{"cluster-node-timeout " + strconv.FormatInt(nodeTimeout.Milliseconds(), 10)}, conf...)
	for i := range 2 * masters {
		busPort, release, err := machine.ReservePort()
		require.NoError(t, err)
		t.Cleanup(release)
		srv, addr, closeAll, err := startRedis("", conf, busPort)
		require.NoError(t, err)
		t.Cleanup(func() { closeChecked(t, closeAll) })
		node := &RedisServer{control: control{t: t, srv: srv}, addr: addr}
		if i < masters {
			require.NoError(t, joinCluster(t.Context(), c.first(), addr, busPort, i, masters))
			c.masters = append(c.masters, node)
		} else {
			require.NoError(t, meet(t.Context(), c.first(), addr, busPort))
		}
		c.nodes = append(c.nodes, node)
	}
	for i, replica := range c.nodes[masters:] {
		c.replicate(replica, c.masters[i])
	}
	for _, node := range c.nodes {
		c.Await(node, func(info string) bool { return strings.Contains(info, "cluster_state:ok") })
	}
	return c
}

func (c *ReplicatedCluster) first() string {
	if len(c.nodes) == 0 {
		return ""
	}
	return c.nodes[0].addr
}

// replicate makes a node a master's replica, once they are
// connected, and waits for its data.
func (c *ReplicatedCluster) replicate(replica, master *RedisServer) {
	c.t.Helper()
	id, err := master.Client().ClusterMyID(c.t.Context()).Result()
	require.NoError(c.t, err)
	rdb := replica.Client()
	require.Eventually(c.t, func() bool { return rdb.ClusterReplicate(c.t.Context(), id).Err() == nil },
		machine.StartTimeout, machine.ProbeInterval, "%s is made a replica", replica.addr)
	require.Eventually(c.t, func() bool {
		info, err := rdb.Info(c.t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	}, machine.StartTimeout, machine.ProbeInterval, "%s follows its master", replica.addr)
}

// URL lists every node, as for DIBS_REDIS_URL.
func (c *ReplicatedCluster) URL() string {
	addrs := make([]string, len(c.nodes))
	for i, node := range c.nodes {
		addrs[i] = node.addr
	}
	return "redis://" + strings.Join(addrs, ",")
}

// MasterOf returns the node that serves a key's slot, according
// to the first node that answers.
func (c *ReplicatedCluster) MasterOf(key string) *RedisServer {
	c.t.Helper()
	for _, node := range c.nodes {
		if addr, err := masterOf(c.t.Context(), node.addr, key); err == nil {
			for _, master := range c.nodes {
				if master.addr == addr {
					return master
				}
			}
		}
	}
	require.FailNow(c.t, "no node serves the slot of "+key)
	return nil
}

func masterOf(ctx context.Context, addr, key string) (string, error) {
	rdb := newClient(addr)
	defer func() { _ = rdb.Close() }()
	slot, err := rdb.ClusterKeySlot(ctx, key).Result()
	if err != nil {
		return "", err
	}
	slots, err := rdb.ClusterSlots(ctx).Result() //nolint:staticcheck // what clients of a cluster ask
	if err != nil {
		return "", err
	}
	for _, s := range slots {
		if int(slot) >= s.Start && int(slot) <= s.End && len(s.Nodes) > 0 {
			return s.Nodes[0].Addr, nil
		}
	}
	return "", fmt.Errorf("%w: slot %d", errClusterForming, slot)
}

// AwaitPromotion waits until every reachable node names a new
// master for a key, and returns that time.
func (c *ReplicatedCluster) AwaitPromotion(dead *RedisServer, key string) time.Time {
	c.t.Helper()
	for _, node := range c.nodes {
		if node == dead {
			continue
		}
		require.Eventually(c.t, func() bool {
			addr, err := masterOf(c.t.Context(), node.addr, key)
			return err == nil && addr != dead.addr
		}, machine.StartTimeout, machine.ProbeInterval, "a replica of %s is promoted, says %s", dead.addr, node.addr)
	}
	return time.Now()
}

// Await waits until a node's CLUSTER INFO is as wanted.
func (c *ReplicatedCluster) Await(node *RedisServer, wanted func(info string) bool) {
	c.t.Helper()
	rdb := node.Client()
	require.Eventually(c.t, func() bool {
		info, err := rdb.ClusterInfo(c.t.Context()).Result()
		return err == nil && wanted(info)
	}, machine.StartTimeout, machine.ProbeInterval, "cluster info of %s", node.addr)
}

// Nodes returns all nodes, the initial masters first.
func (c *ReplicatedCluster) Nodes() []*RedisServer { return c.nodes }

// MoveSlot moves a key's slot to another master, key by key with
// pauses, as a resharding does.
func (c *ReplicatedCluster) MoveSlot(key string, pause time.Duration) {
	c.t.Helper()
	c.BeginMove(key)(pause)
}

// BeginMove marks a slot as migrating: its master still has all keys, and
// refers clients to the next for missing ones. move moves the keys.
func (c *ReplicatedCluster) BeginMove(key string) (move func(pause time.Duration)) {
	c.t.Helper()
	from := c.MasterOf(key)
	masters := c.mastersNow()
	to := masters[0]
	if to == from {
		to = masters[1]
	}
	ctx := c.t.Context()
	source := newClient(from.addr)
	target := newClient(to.addr)
	c.t.Cleanup(func() {
		_ = source.Close()
		_ = target.Close()
	})
	slot, err := source.ClusterKeySlot(ctx, key).Result()
	require.NoError(c.t, err)
	fromID := source.ClusterMyID(ctx).Val()
	toID := target.ClusterMyID(ctx).Val()
	require.NoError(c.t, target.Do(ctx, "cluster", "setslot", slot, "importing", fromID).Err())
	require.NoError(c.t, source.Do(ctx, "cluster", "setslot", slot, "migrating", toID).Err())
	return func(pause time.Duration) {
		c.t.Helper()
		host, port, _ := strings.Cut(to.addr, ":")
		for {
			keys, err := source.ClusterGetKeysInSlot(ctx, int(slot), 1).Result()
			require.NoError(c.t, err)
			if len(keys) == 0 {
				break
			}
			require.NoError(c.t, source.Migrate(ctx, host, port, keys[0], 0, machine.StartTimeout).Err())
			time.Sleep(pause) //nolint:forbidigo // the load goes on in the meantime
		}
		for _, node := range append([]*RedisServer{to, from}, masters...) {
			rdb := newClient(node.addr)
			err := rdb.Do(ctx, "cluster", "setslot", slot, "node", toID).Err()
			_ = rdb.Close()
			require.NoError(c.t, err)
		}
	}
}

// mastersNow returns the current masters, as many as initially.
func (c *ReplicatedCluster) mastersNow() (masters []*RedisServer) {
	c.t.Helper()
	for _, node := range c.nodes {
		rdb := newClient(node.addr)
		info, err := rdb.Info(c.t.Context(), "replication").Result()
		_ = rdb.Close()
		require.NoError(c.t, err)
		if strings.Contains(info, "role:master") {
			masters = append(masters, node)
		}
	}
	require.Len(c.t, masters, len(c.masters))
	return masters
}
