package lua

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
)

// hungAfter is how long a call waits for its answer until it is asked whether another node serves its slot by now.
const hungAfter = 500 * time.Millisecond

// nodeConns are the connections to a node of a cluster.
type nodeConns struct {
	mu   sync.Mutex
	open map[*nodeConn]struct{}
}

// nodeConn is a connection that its node knows of.
type nodeConn struct {
	net.Conn

	of *nodeConns
}

// Close closes the connection, and has the node forget it.
func (c *nodeConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// add notes a connection.
func (n *nodeConns) add(conn net.Conn) net.Conn {
	c := &nodeConn{conn, n}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open[c] = struct{}{}
	return c
}

// cut ends whatever waits for an answer of the node: by an error of the connection, so that no one takes it for not done.
func (n *nodeConns) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.open {
		_ = c.Conn.Close() // the pool closes c itself
	}
}

// keyOf is the key that a call of a script goes by; "": it is another command.
func keyOf(cmd redis.Cmder) string {
	args := cmd.Args()
	if name := cmd.Name(); name != "evalsha" && name != "eval" || len(args) < 4 {
		return ""
	}
	key, _ := args[3].(string)
	return key
}

// watchStalledCall asks again where the slots are as long as a call gets no answer, and ends the calls of a node that no longer serves the
// call's slot: one that hangs keeps its connections, and would keep its callers until their time is up. Nothing is sent again.
func (h reloadSlots) watchStalledCall(ctx context.Context, cmd redis.Cmder) (stop func()) {
	key := keyOf(cmd)
	if key == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	looking := time.AfterFunc(hungAfter, func() {
		for ctx.Err() == nil {
			h.cluster.ReloadState(ctx) // it is there a moment later
			if sleep.For(ctx, hungAfter/2) != nil {
				return
			}
			if serves, err := h.cluster.MasterForKey(ctx, key); err == nil && serves.Options().Addr != h.addr {
				h.conns.cut()
				return
			}
		}
	})
	return func() { looking.Stop(); cancel() }
}
