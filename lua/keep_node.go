package lua

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

var errClient = errors.New("this kind of client can't keep several commands on one connection")

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

// redirect follows a cluster that says where a key is, or is about to be: then asking comes first. Nothing ran. Nil is
// nowhere to go, and the error stands.
func (s *Scripts) redirect(ctx context.Context, err error) (node *redis.Client, asking bool) {
	cluster, isCluster := s.rdb.(*redis.ClusterClient)
	if !isCluster || err == nil {
		return nil, false
	}
	addr, asking := redirection(err)
	if !asking { // a dead or moved master: the next call should know better
		cluster.ReloadState(ctx)
	}
	if addr == "" {
		return nil, false
	}
	// Each shard has its own goroutine, but only one can have the address.
	found := make(chan *redis.Client, 1)
	_ = cluster.ForEachShard(ctx, func(_ context.Context, one *redis.Client) error {
		if one.Options().Addr == addr {
			select {
			case found <- one:
			default:
			}
		}
		return nil
	})
	select {
	case node = <-found:
		return node, asking
	default:
		return nil, false
	}
}

// redirection reads "MOVED slot address" and "ASK slot address".
func redirection(err error) (addr string, asking bool) {
	if !redis.HasErrorPrefix(err, "MOVED ") && !redis.HasErrorPrefix(err, "ASK ") {
		return "", false
	}
	words := strings.Fields(err.Error())
	return words[len(words)-1], redis.HasErrorPrefix(err, "ASK ")
}
