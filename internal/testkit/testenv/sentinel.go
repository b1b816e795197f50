package testenv

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
)

const sentinelMaster = "dibs"

// SentinelSet is a set of Sentinels for one Redis and its replicas.
type SentinelSet struct {
	t       testing.TB
	addrs   []string
	clients []*redis.SentinelClient
}

// Sentinels starts three Sentinels, which declare the primary
// dead after down. It waits until they know its replicas, and
// ends them with the test. They run only as local processes.
func Sentinels(t testing.TB, primary *RedisServer, replicas int, down time.Duration) *SentinelSet {
	t.Helper()
	s := &SentinelSet{t: t}
	host, port, err := net.SplitHostPort(primary.Addr())
	require.NoError(t, err)
	for range 3 {
		p, err := machine.NewHome("sentinel")
		require.NoError(t, err)
		t.Cleanup(p.Remove)
		program, err := machine.FindProgram("redis-server", "valkey-server")
		require.NoError(t, err)
		file := filepath.Join(p.Folder, "sentinel.conf")
		lines := []string{
			"port " + strconv.Itoa(p.Port), "bind 127.0.0.1", "dir " + p.Folder, "protected-mode no",
			fmt.Sprintf("sentinel monitor %s %s %s 2", sentinelMaster, host, port),
			fmt.Sprintf("sentinel down-after-milliseconds %s %d", sentinelMaster, down.Milliseconds()),
			"sentinel failover-timeout " + sentinelMaster + " 5000",
		}
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
		addr := machine.Loopback(p.Port)
		srv := &machine.Server{
			Name: "sentinel", Host: machine.Process{Program: program, Args: []string{file, "--sentinel"}, Folder: p.Folder}, Log: p.Log(),
			Probe: func(ctx context.Context) error { return pingRedis(ctx, addr) },
		}
		require.NoError(t, srv.Start())
		t.Cleanup(func() { closeChecked(t, srv.Close) })
		s.addrs = append(s.addrs, addr)
	}
	for i, addr := range s.addrs {
		s.clients = append(s.clients, s.client(addr))
		c := s.clients[i]
		require.Eventually(t, func() bool {
			seen, err := c.Replicas(t.Context(), sentinelMaster).Result()
			others, otherErr := c.Sentinels(t.Context(), sentinelMaster).Result()
			return err == nil && otherErr == nil && len(seen) == replicas && len(others) == 2
		}, machine.StartTimeout, machine.ProbeInterval, "%s knows the replicas and the other Sentinels", addr)
	}
	return s
}

func (s *SentinelSet) client(addr string) *redis.SentinelClient {
	c := redis.NewSentinelClient(&redis.Options{Addr: addr, MaxRetries: -1})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// URL is the primary's address, as for DIBS_REDIS_URL.
func (s *SentinelSet) URL() string {
	return "redis+sentinel://" + strings.Join(s.addrs, ",") + "/" + sentinelMaster
}

// AwaitPromotion waits until all Sentinels name a new primary,
// and returns that time.
func (s *SentinelSet) AwaitPromotion(dead *RedisServer) time.Time {
	s.t.Helper()
	for i, addr := range s.addrs {
		c := s.clients[i]
		require.Eventually(s.t, func() bool {
			named, err := c.GetMasterAddrByName(s.t.Context(), sentinelMaster).Result()
			return err == nil && net.JoinHostPort(named[0], named[1]) != dead.Addr()
		}, machine.StartTimeout, machine.ProbeInterval, "a replica of %s is promoted, says %s", dead.Addr(), addr)
	}
	return time.Now()
}

// Replicate makes a Redis a replica of another and waits for its data.
func Replicate(t testing.TB, replica, primary *RedisServer) {
	t.Helper()
	host, port, err := net.SplitHostPort(primary.Addr())
	require.NoError(t, err)
	rdb := replica.Client()
	require.NoError(t, rdb.Do(t.Context(), "replicaof", host, port).Err())
	require.Eventually(t, func() bool {
		info, err := rdb.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	}, machine.StartTimeout, machine.ProbeInterval, "%s follows %s", replica.Addr(), primary.Addr())
}
