package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
)

const clusterSlots = 16384

// errClusterForming means that the nodes have not agreed yet.
var errClusterForming = errors.New("testenv: cluster not formed yet")

// RedisCluster starts a cluster of masters without replicas and
// returns their addresses. All slots are covered and all nodes
// agree. It ends with the test.
func RedisCluster(t testing.TB, masters int) []string {
	t.Helper()
	return RedisClusterOf(t, masters, func(int) []string { return nil })
}

// RedisClusterOf is RedisCluster with redis.conf lines for each node.
func RedisClusterOf(t testing.TB, masters int, conf func(node int) []string) []string {
	t.Helper()
	require.Positive(t, masters, "masters")
	addrs := make([]string, masters)
	for i := range addrs {
		busPort, release, err := machine.ReservePort()
		require.NoError(t, err)
		t.Cleanup(release)
		_, addr, closeAll, err := startRedis("", conf(i), busPort)
		require.NoError(t, err)
		t.Cleanup(func() { closeChecked(t, closeAll) })
		require.NoError(t, joinCluster(t.Context(), addrs[0], addr, busPort, i, masters))
		addrs[i] = addr
	}
	require.NoError(t, awaitCluster(t.Context(), addrs))
	return addrs
}

// joinCluster assigns node i of n its share of the slots and
// introduces it to the first node; first is "" for that one.
func joinCluster(ctx context.Context, first, addr string, busPort, i, n int) error {
	c := newClient(addr)
	defer func() { _ = c.Close() }()
	from := clusterSlots * i / n
	to := clusterSlots*(i+1)/n - 1
	if err := c.ClusterAddSlotsRange(ctx, from, to).Err(); err != nil {
		return fmt.Errorf("testenv: slots of %s: %w", addr, err)
	}
	// Each node gets its own epoch: colliding ones are resolved
	// slowly, one by one.
	if err := c.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
		return fmt.Errorf("testenv: epoch of %s: %w", addr, err)
	}
	if first == "" {
		return nil
	}
	return meet(ctx, first, addr, busPort)
}

// meet introduces a node to the first one. It passes the bus
// port, which is not at the usual offset.
func meet(ctx context.Context, first, addr string, busPort int) error {
	c := newClient(first)
	defer func() { _ = c.Close() }()
	ip, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("testenv: cluster address: %w", err)
	}
	if err := c.Do(ctx, "CLUSTER", "MEET", ip, port, busPort).Err(); err != nil {
		return fmt.Errorf("testenv: meet %s: %w", addr, err)
	}
	return nil
}

func awaitCluster(ctx context.Context, addrs []string) error {
	ctx, cancel := context.WithTimeout(ctx, machine.StartTimeout)
	defer cancel()
	tick := time.NewTicker(machine.ProbeInterval)
	defer tick.Stop()
	for {
		err := clusterFormed(ctx, addrs)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// clusterFormed returns nil once every node reports a healthy
// cluster with all slots served.
func clusterFormed(ctx context.Context, addrs []string) error {
	for _, addr := range addrs {
		slots, err := slotsSeenBy(ctx, addr, len(addrs))
		if err != nil {
			return err
		}
		if slots != clusterSlots {
			return fmt.Errorf("%w: %s sees %d slots", errClusterForming, addr, slots)
		}
	}
	return nil
}

func slotsSeenBy(ctx context.Context, addr string, masters int) (int64, error) {
	c := newClient(addr)
	defer func() { _ = c.Close() }()
	info, err := c.ClusterInfo(ctx).Result()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errClusterForming, err)
	}
	if !strings.Contains(info, "cluster_state:ok") {
		return 0, fmt.Errorf("%w: %s refuses commands", errClusterForming, addr)
	}
	shards, err := c.ClusterShards(ctx).Result()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errClusterForming, err)
	}
	if len(shards) != masters {
		return 0, fmt.Errorf("%w: %s knows %d of %d masters", errClusterForming, addr, len(shards), masters)
	}
	slots := int64(0)
	for _, shard := range shards {
		for _, r := range shard.Slots {
			slots += r.End - r.Start + 1
		}
	}
	return slots, nil
}
