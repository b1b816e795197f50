package redisconn

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
)

// stalledAfter is how long a call waits for its reply before
// checking whether another node now serves its slot.
const stalledAfter = 500 * time.Millisecond

// followFailovers makes a cluster client reload its slots whenever a node
// fails. By default it reloads on a redirect and once a minute, and a dead
// master redirects no one. A reload costs a read, at most five a second.
// Failed commands are not resent.
func followFailovers(cluster *redis.ClusterClient) {
	cluster.OnNewNode(func(node *redis.Client) {
		node.AddHook(&nodeHook{cluster: cluster, addr: node.Options().Addr, open: map[*nodeConn]struct{}{}})
	})
}

type nodeHook struct {
	cluster *redis.ClusterClient
	addr    string

	mu   sync.Mutex
	open map[*nodeConn]struct{}
}

type nodeConn struct {
	net.Conn

	of *nodeHook
}

// Close closes the connection and ends its tracking.
func (c *nodeConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// DialHook reloads the slots when the node can't be reached.
func (h *nodeHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		h.after(ctx, err)
		if err != nil {
			return nil, err
		}
		c := &nodeConn{conn, h}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.open[c] = struct{}{}
		return c, nil
	}
}

// ProcessHook wraps a single command.
func (h *nodeHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.send(ctx, cmd, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook wraps a pipeline.
func (h *nodeHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.send(ctx, cmds[0], func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

// send reloads the slots if the node does not answer or redirects.
func (h *nodeHook) send(ctx context.Context, first redis.Cmder, send func(context.Context) error) error {
	if first.Name() == "cluster" { // it reads the slots, which any node can return
		slots, cancel := context.WithTimeout(ctx, 2*stalledAfter)
		defer cancel()
		ctx = slots
	}
	defer h.watchCall(ctx, first)()
	err := send(ctx)
	h.after(ctx, err)
	return err
}

// watchCall reloads the slots repeatedly while a script call has
// no reply. A stalled node keeps its connections open and would
// block callers until their deadline. Once it no longer serves
// the call's slot, all its calls are ended. Nothing is resent.
func (h *nodeHook) watchCall(ctx context.Context, cmd redis.Cmder) (stop func()) {
	args := cmd.Args()
	if name := cmd.Name(); name != "evalsha" && name != "eval" || len(args) < 4 {
		return func() {}
	}
	key, _ := args[3].(string)
	ctx, cancel := context.WithCancel(ctx)
	watching := time.AfterFunc(stalledAfter, func() {
		for ctx.Err() == nil {
			h.cluster.ReloadState(ctx) // done in the background
			if sleep.For(ctx, stalledAfter/2) != nil {
				return
			}
			if serves, err := h.cluster.MasterForKey(ctx, key); err == nil && serves.Options().Addr != h.addr {
				h.cut()
				return
			}
		}
	})
	return func() { watching.Stop(); cancel() }
}

// cut ends all calls waiting for the node with a connection
// error. The outcome of such a call is unknown.
func (h *nodeHook) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.open {
		_ = c.Conn.Close() // the pool closes c itself
	}
}

func (h *nodeHook) after(ctx context.Context, err error) {
	if mayHaveMoved(err) {
		h.cluster.ReloadState(ctx)
	}
}

// mayHaveMoved reports whether an error may mean that other
// nodes now serve the slots. Any connection error may; of the
// node's own replies, only those that say so.
func mayHaveMoved(err error) bool {
	var answer redis.Error
	switch {
	case err == nil, errors.Is(err, redis.Nil), errors.Is(err, context.Canceled), errors.Is(err, redis.ErrClosed):
		return false
	case !errors.As(err, &answer):
		return true
	}
	return slices.ContainsFunc([]string{"MOVED ", "CLUSTERDOWN ", "READONLY ", "LOADING ", "MASTERDOWN "},
		func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}
