package lua

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// followFailovers has a cluster client ask again where the slots are whenever a node fails. By itself it does so when a node
// sends it elsewhere, and once a minute: a master that died sends no one elsewhere. Asking costs a read, at most five a second;
// what failed is not sent again.
func followFailovers(cluster *redis.ClusterClient) {
	cluster.OnNewNode(func(node *redis.Client) {
		node.AddHook(reloadSlots{cluster, node.Options().Addr, &nodeConns{open: map[*nodeConn]struct{}{}}})
	})
}

// reloadSlots is a hook of one node's client.
type reloadSlots struct {
	cluster *redis.ClusterClient
	addr    string
	conns   *nodeConns
}

// DialHook reloads the slots when the node can't be reached.
func (h reloadSlots) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		h.after(ctx, err)
		if err != nil {
			return nil, err
		}
		return h.conns.add(conn), nil
	}
}

// ProcessHook reloads the slots when the node does not answer, or says that it is not the one to ask.
func (h reloadSlots) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "cluster" { // it asks for the slots, which the next node tells as well
			slots, cancel := context.WithTimeout(ctx, 2*hungAfter)
			defer cancel()
			ctx = slots
		}
		defer h.watchStalledCall(ctx, cmd)()
		err := next(ctx, cmd)
		h.after(ctx, err)
		return err
	}
}

// ProcessPipelineHook is ProcessHook for several commands.
func (h reloadSlots) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer h.watchStalledCall(ctx, cmds[0])()
		err := next(ctx, cmds)
		h.after(ctx, err)
		return err
	}
}

func (h reloadSlots) after(ctx context.Context, err error) {
	if mayHaveMoved(err) {
		h.cluster.ReloadState(ctx)
	}
}

// mayHaveMoved reports whether an error may mean that other nodes serve the slots now. Any error of the connection may; of the
// node's own answers only those that say so.
func mayHaveMoved(err error) bool {
	var answer redis.Error
	switch {
	case err == nil, errors.Is(err, redis.Nil), errors.Is(err, context.Canceled), errors.Is(err, redis.ErrClosed):
		return false
	case !errors.As(err, &answer):
		return true
	}
	for _, prefix := range []string{"MOVED ", "CLUSTERDOWN ", "READONLY ", "LOADING ", "MASTERDOWN "} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}
