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

// stalledAfter is how long a call waits for its answer until it is checked
// whether another node serves its slot by now.
const stalledAfter = 500 * time.Millisecond

// followFailovers has a cluster client ask again where the slots are whenever a
// node fails. By itself it does so when a node sends it elsewhere, and once a
// minute: a master that died sends no one elsewhere. Asking costs a read, at
// most five a second. What failed is not sent again.
func followFailovers(cluster *redis.ClusterClient) {
	cluster.OnNewNode(func(node *redis.Client) {
		node.AddHook(&nodeHook{cluster: cluster, addr: node.Options().Addr, open: map[*nodeConn]struct{}{}})
	})
}

// nodeHook is the hook of one node's client.
type nodeHook struct {
	cluster *redis.ClusterClient
	addr    string

	mu   sync.Mutex
	open map[*nodeConn]struct{}
}

// nodeConn is a connection that its node's hook knows of.
type nodeConn struct {
	net.Conn

	of *nodeHook
}

// Close closes the connection, and has the hook forget it.
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

// ProcessHook is called for each command.
func (h *nodeHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.send(ctx, cmd, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook is called for several commands.
func (h *nodeHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.send(ctx, cmds[0], func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

// send reloads the slots when the node does not answer, or says that it is not
// the one to ask.
func (h *nodeHook) send(ctx context.Context, first redis.Cmder, send func(context.Context) error) error {
	if first.Name() == "cluster" { // it asks for the slots, which the next node tells as well
		slots, cancel := context.WithTimeout(ctx, 2*stalledAfter)
		defer cancel()
		ctx = slots
	}
	defer h.watchCall(ctx, first)()
	err := send(ctx)
	h.after(ctx, err)
	return err
}

// watchCall asks again where the slots are for as long as a call of a script
// gets no answer. A node that stalls keeps its connections, and would keep its
// callers until their time is up. So once it no longer serves the call's slot,
// all its calls are ended. Nothing is sent again.
func (h *nodeHook) watchCall(ctx context.Context, cmd redis.Cmder) (stop func()) {
	args := cmd.Args()
	if name := cmd.Name(); name != "evalsha" && name != "eval" || len(args) < 4 {
		return func() {}
	}
	key, _ := args[3].(string)
	ctx, cancel := context.WithCancel(ctx)
	watching := time.AfterFunc(stalledAfter, func() {
		for ctx.Err() == nil {
			h.cluster.ReloadState(ctx) // it is there a moment later
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

// cut ends whatever waits for an answer of the node by an error of the
// connection: the outcome of such a call is not known.
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

// mayHaveMoved reports whether an error may mean that other nodes serve the
// slots now. Any error of the connection may. Of the node's own answers only
// those that say so.
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
