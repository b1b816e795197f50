package torture

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

// failoverFaults are for a Redis whose nodes have replicas.
func failoverFaults() []*fault {
	noReplicas := func(w *world) string {
		if w.opt.Topology == Alone {
			return "a Redis alone has no replica"
		}
		return ""
	}
	noCluster := only(Cluster, "only a cluster hands over without a loss")
	return []*fault{
		{name: "kill primary", target: onRedis, weight: 6, lasts: span(100, 4000), takes: 4 * time.Second,
			cannot: noReplicas, loses: unlessMySQL,
			inject: trying(func(w *world, s *injection) {
				node, key := w.primary(s)
				node.Kill()
				w.awaitPromotion(node, key)
				wait(w.ctx, s.lasts)
				node.StartRepaired()
				w.demote(node, s)
				w.awaitWhole()
			})},
		{name: "pause primary", target: onRedis, weight: 2, lasts: span(200, 6000), takes: 2 * time.Second,
			cannot: noReplicas, loses: unlessMySQL,
			inject: trying(func(w *world, s *injection) {
				node, _ := w.primary(s)
				node.Pause()
				wait(w.ctx, s.lasts)
				node.Resume()
				w.demote(node, s)
				w.awaitWhole()
			})},
		{name: "kill replica", target: onRedis, weight: 3, lasts: span(20, 3000), takes: time.Second, cannot: noReplicas,
			inject: trying(func(w *world, s *injection) {
				node := w.replica(s)
				node.Kill()
				wait(w.ctx, s.lasts)
				node.StartRepaired()
				w.awaitWhole()
			})},
		{name: "slots move", target: onRedis, weight: 4, lasts: span(1, 30), takes: time.Second, cannot: noCluster,
			inject: trying(func(w *world, s *injection) {
				s.what = fmt.Sprintf("of partition %d", s.who%w.partitions)
				w.cluster.MoveSlot(lua.StreamKey(s.who%w.partitions), s.lasts)
			})},
		{name: "planned failover", target: onRedis, weight: 4, lasts: span(100, 1000), takes: time.Second, cannot: noCluster,
			inject: trying((*world).plannedFailover)},
	}
}

// unlessMySQL: a promoted lagging replica loses what it lacks.
func unlessMySQL(o *Options) bool { return o.Durability != lua.MySQL }

// primary picks a node that serves one of the claim streams, and
// that stream's key.
func (w *world) primary(s *injection) (*testenv.RedisServer, string) {
	key := lua.StreamKey(s.who % w.partitions)
	if w.cluster != nil {
		s.what = fmt.Sprintf("of partition %d", s.who%w.partitions)
		return w.cluster.MasterOf(key), key
	}
	for _, node := range w.redis {
		if strings.Contains(w.replication(node), "role:master") {
			return node, key
		}
	}
	w.Fatalf("no node is a primary")
	return nil, ""
}

func (w *world) replica(s *injection) *testenv.RedisServer {
	for i := range w.redis {
		if node := pick(w.redis, s.who+i); strings.Contains(w.replication(node), "role:slave") {
			return node
		}
	}
	w.Fatalf("no node is a replica")
	return nil
}

// replication returns a node's INFO replication; "" without a reply.
func (w *world) replication(node *testenv.RedisServer) string {
	rdb := redis.NewClient(&redis.Options{Addr: node.Addr(), MaxRetries: -1})
	defer func() { _ = rdb.Close() }()
	info, _ := rdb.Info(w.ctx, "replication").Result()
	return info
}

// demote makes a returned primary follow the promoted one. Every fourth time
// it leaves that to the Sentinels, which take ten seconds.
func (w *world) demote(back *testenv.RedisServer, s *injection) {
	if w.sentinels == nil || s.n%4 == 0 {
		return
	}
	for _, node := range w.redis {
		if node != back && strings.Contains(w.replication(node), "role:master") {
			testenv.Replicate(w.Program, back, node)
		}
	}
}

func (w *world) awaitPromotion(dead *testenv.RedisServer, key string) {
	if w.cluster != nil {
		w.cluster.AwaitPromotion(dead, key)
	} else {
		w.sentinels.AwaitPromotion(dead)
	}
}

// awaitWhole waits until half of the nodes are primaries and
// half follow them: the next fault removes another node.
func (w *world) awaitWhole() {
	for deadline := time.Now().Add(healWithin); ; wait(w.ctx, 20*time.Millisecond) {
		primaries := 0
		followers := 0
		all := []string(nil)
		for _, node := range w.redis {
			info := w.replication(node)
			all = append(all, info)
			switch {
			case strings.Contains(info, "role:master"):
				primaries++
			case strings.Contains(info, "master_link_status:up"):
				followers++
			}
		}
		if primaries == len(w.redis)/2 && followers == primaries && w.serves() {
			return
		}
		if time.Now().After(deadline) || w.ctx.Err() != nil {
			w.Fatalf("Redis is not whole again within %s: %s", healWithin, all)
		}
	}
}

// serves reports whether every node of a cluster reports a healthy state.
func (w *world) serves() bool {
	for _, node := range w.redis {
		if w.cluster == nil {
			break
		}
		rdb := redis.NewClient(&redis.Options{Addr: node.Addr(), MaxRetries: -1})
		info, err := rdb.ClusterInfo(w.ctx).Result()
		_ = rdb.Close()
		if err != nil || !strings.Contains(info, "cluster_state:ok") {
			return false
		}
	}
	return true
}

// plannedFailover promotes a replica in cooperation with its
// primary, which waits until the replica has everything.
func (w *world) plannedFailover(s *injection) {
	old, key := w.primary(s)
	for _, node := range w.redis {
		info := w.replication(node)
		if !strings.Contains(info, "role:slave") || !strings.Contains(info, "master_port:"+port(old.Addr())+"\r") {
			continue
		}
		w.failOver(old, node, key)
		w.awaitWhole()
		return
	}
	w.Fatalf("the primary of %s has no replica", key)
}

// failoverWithin is when a replica has given up a planned
// failover: after 5 s.
const failoverWithin = 6 * time.Second

// failOver retries a replica's failover until done: on a busy
// machine it may not get the votes in time.
func (w *world) failOver(old, replica *testenv.RedisServer, key string) {
	rdb := replica.Client()
	defer func() { _ = rdb.Close() }()
	for deadline := time.Now().Add(healWithin); ; {
		if err := rdb.ClusterFailover(w.ctx).Err(); err != nil && strings.Contains(w.replication(replica), "role:slave") {
			w.Fatalf("CLUSTER FAILOVER: %v", err)
		}
		for tried := time.Now(); time.Since(tried) < failoverWithin && w.ctx.Err() == nil; wait(w.ctx, 20*time.Millisecond) {
			if strings.Contains(w.replication(replica), "role:master") {
				w.cluster.AwaitPromotion(old, key)
				return
			}
		}
		if time.Now().After(deadline) || w.ctx.Err() != nil {
			w.Fatalf("no planned failover within %s", healWithin)
		}
	}
}

func port(addr string) string {
	_, port, _ := strings.Cut(addr, ":")
	return port
}
