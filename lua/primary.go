package lua

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// electorsTimeout bounds the question who the primary is.
const electorsTimeout = time.Second

// isAlone reports whether those who decide about failovers say that a node is the primary of a key, and know of no replica that could
// take over: most masters of the cluster, or most Sentinels. The node itself can't tell. One that was cut off and replaced takes itself
// for a primary without replicas, and so does one that is about to be replaced. A server that no one watches has no successor.
func (s *Scripts) isAlone(ctx context.Context, node *redis.Client, key string) bool {
	ctx, cancel := context.WithTimeout(ctx, electorsTimeout)
	defer cancel()
	var votes, electors atomic.Int64
	switch c := s.rdb.(type) {
	case *redis.ClusterClient:
		nodes, err := node.ClusterNodes(ctx).Result()
		if err != nil {
			return false
		}
		id := idOfMyself(nodes)
		_ = c.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			electors.Add(1)
			if isOwner(ctx, master, slotOfKey(key), id) {
				votes.Add(1)
			}
			return nil
		})
	case *sentinelClient:
		info, err := Info(ctx, node, "server")
		if err != nil {
			return false
		}
		var asked sync.WaitGroup
		for _, addr := range c.options.Failover().SentinelAddrs {
			electors.Add(1)
			asked.Go(func() {
				if c.isNamed(ctx, addr, info["run_id"]) {
					votes.Add(1)
				}
			})
		}
		asked.Wait()
	default:
		return true
	}
	return 2*votes.Load() > electors.Load()
}

// idOfMyself is the id of the node that answered CLUSTER NODES.
func idOfMyself(nodes string) string {
	for line := range strings.Lines(nodes) {
		if strings.Contains(line, "myself") {
			id, _, _ := strings.Cut(line, " ")
			return id
		}
	}
	return ""
}

// isOwner reports whether a master of a cluster says that a slot is that of the node with an id, and that no replica of it is up.
func isOwner(ctx context.Context, master *redis.Client, slot int, id string) bool {
	ranges, err := master.ClusterSlots(ctx).Result() //nolint:staticcheck // Redis before 7.0 has no CLUSTER SHARDS
	return err == nil && slices.ContainsFunc(ranges, func(r redis.ClusterSlot) bool {
		return r.Start <= slot && slot <= r.End && len(r.Nodes) == 1 && r.Nodes[0].ID == id
	})
}

// sentinelClient is a client of the primary that Sentinels name, and can ask them.
type sentinelClient struct {
	*redis.Client

	options *redis.UniversalOptions
}

// isNamed reports whether a Sentinel says that the server with a run id is the primary, finds nothing wrong with it, and takes all its
// replicas for down. Where a Sentinel knows so many others that those in the URL are no majority, nothing can be said.
func (c *sentinelClient) isNamed(ctx context.Context, addr, runID string) bool {
	o := c.options.Failover()
	sentinel := redis.NewSentinelClient(&redis.Options{
		Addr: addr, Username: o.SentinelUsername, Password: o.SentinelPassword, TLSConfig: o.TLSConfig, Dialer: o.Dialer, MaxRetries: -1,
		DisableIdentity: true, Protocol: o.Protocol,
	})
	defer func() { _ = sentinel.Close() }()
	replicas, err := sentinel.Replicas(ctx, o.MasterName).Result()
	isUp := func(r map[string]string) bool { return !strings.Contains(r["flags"], "_down") }
	if err != nil || slices.ContainsFunc(replicas, isUp) {
		return false
	}
	said, err := sentinel.Master(ctx, o.MasterName).Result()
	others, countErr := strconv.Atoi(said["num-other-sentinels"])
	return err == nil && countErr == nil && said["flags"] == "master" && said["runid"] == runID && others+1 < 2*len(o.SentinelAddrs)
}
