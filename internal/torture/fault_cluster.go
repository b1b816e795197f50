package torture

import (
	"fmt"
	"strings"
	"time"

	"dibs/internal/testenv"
	"dibs/lua"
)

// primary picks a node that serves one of the claim streams, and a key of it.
func (w *world) primary(s *stroke) (*testenv.RedisServer, string) {
	key := lua.StreamKey(s.who % w.partitions)
	node := w.cluster.MasterOf(key)
	s.what = fmt.Sprintf("of partition %d", s.who%w.partitions)
	return node, key
}

// awaitReplica waits until a node that was away is part of a whole cluster again: the next fault takes another one away.
func (w *world) awaitReplica(node *testenv.RedisServer) {
	rdb := node.Client()
	for deadline := time.Now().Add(healWithin); ; time.Sleep(20 * time.Millisecond) {
		cluster, err := rdb.ClusterInfo(w.ctx).Result()
		replication, err2 := rdb.Info(w.ctx, "replication").Result()
		follows := strings.Contains(replication, "role:master") || strings.Contains(replication, "master_link_status:up")
		if err == nil && err2 == nil && strings.Contains(cluster, "cluster_state:ok") && follows {
			return
		}
		if time.Now().After(deadline) || w.ctx.Err() != nil {
			w.Fatalf("a node of the cluster does not come back: %v %v %s %s", err, err2, cluster, replication)
		}
	}
}

// plannedFailover has a replica take over from its primary, which waits until the replica has everything.
func (w *world) plannedFailover(s *stroke) {
	old, key := w.primary(s)
	for _, node := range w.redis {
		rdb := node.Client()
		info, err := rdb.Info(w.ctx, "replication").Result()
		if err != nil || !strings.Contains(info, "role:slave") || !strings.Contains(info, "master_port:"+port(old.Addr())+"\r") {
			continue
		}
		if err := rdb.ClusterFailover(w.ctx).Err(); err != nil {
			w.Fatalf("CLUSTER FAILOVER: %v", err)
		}
		w.cluster.AwaitPromotion(old, key)
		w.awaitReplica(old)
		return
	}
	w.Fatalf("the primary of %s has no replica", key)
}

func port(addr string) string {
	_, port, _ := strings.Cut(addr, ":")
	return port
}
