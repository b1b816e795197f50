package lua

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

var errClient = errors.New("this kind of client can't send several commands on one connection")

// nodeOf is the client of the one server that holds key. A cluster client's own pipeline would send a wait, which names no
// key, to any node.
func (s *Scripts) nodeOf(ctx context.Context, key string) (*redis.Client, error) {
	switch c := s.rdb.(type) {
	case *redis.Client:
		return c, nil
	case *sentinelClient:
		return c.Client, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	default:
		return nil, fmt.Errorf("%w: %T", errClient, c)
	}
}

// nodeAfter finds where to send a command that belongs to a key: where the key is, or, when a node refused it because the key has gone
// over to another (ASK), that other node, which must be told that it is asked.
func (s *Scripts) nodeAfter(ctx context.Context, key string, refused error) (node *redis.Client, asking bool, err error) {
	cluster, isCluster := s.rdb.(*redis.ClusterClient)
	if !isCluster || !redis.HasErrorPrefix(refused, askPrefix) {
		node, err = s.nodeOf(ctx, key)
		return node, false, err
	}
	words := strings.Fields(refused.Error()) // ASK slot host:port
	var found atomic.Pointer[redis.Client]
	err = cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		if master.Options().Addr == words[len(words)-1] {
			found.Store(master)
		}
		return nil
	})
	node = found.Load()
	if node == nil && err == nil {
		err = fmt.Errorf("%w: %w", errNotSent, refused)
	}
	return node, true, err
}

// askPrefix begins the refusal of a node whose slot moves to another node, of keys that are there already.
const askPrefix = "ASK "

// relearn has a cluster client ask where the keys are after a node said that it does not serve them. Then nothing ran, and the
// command may be sent again. After other errors the client asks in the background, as a master may have died.
func (s *Scripts) relearn(ctx context.Context, err error) (again bool) {
	cluster, isCluster := s.rdb.(*redis.ClusterClient)
	switch {
	case !isCluster || err == nil:
		return false
	case redis.HasErrorPrefix(err, askPrefix):
		return true
	case !redis.HasErrorPrefix(err, "MOVED "):
		cluster.ReloadState(ctx)
		return false
	}
	// This asks the cluster for its map before anything else, which ReloadState does not wait for.
	return cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil }) == nil
}
