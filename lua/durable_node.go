package lua

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

var errClient = errors.New("this kind of client can't send several commands on one connection")

// nodeOf is the client of the one server that holds key. A cluster client's own pipeline would send a wait, which names no
// key, to any node.
func (s *Scripts) nodeOf(ctx context.Context, key string) (*redis.Client, error) {
	switch c := s.rdb.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	default:
		return nil, fmt.Errorf("%w: %T", errClient, c)
	}
}

// relearn has a cluster client ask where the keys are after a node said that it does not serve them. Then nothing ran, and the
// command may be sent again. After other errors the client asks in the background, as a master may have died. A slot that moves
// between nodes (ASK) is not followed: its claims are refused until it has arrived.
func (s *Scripts) relearn(ctx context.Context, err error) (again bool) {
	cluster, isCluster := s.rdb.(*redis.ClusterClient)
	if !isCluster || err == nil {
		return false
	}
	if !redis.HasErrorPrefix(err, "MOVED ") {
		cluster.ReloadState(ctx)
		return false
	}
	// This asks the cluster for its map before anything else, which ReloadState does not wait for.
	return cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil }) == nil
}
