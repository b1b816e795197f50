package api

import (
	"container/list"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"dibs/api/auth"
)

// Connections bounds the connections of a server.
type Connections struct {
	Most    int     // at once; more wait until one ends
	Trusted Proxies // whose connections are those of many
}

// Serve serves srv on ln, with TLS if config is one. No address but that of a trusted proxy may have more than half of the connections.
// When there are as many as there may be, the one that has been idle for longest makes way for a new one.
func (c Connections) Serve(srv *http.Server, ln net.Listener, config *tls.Config) error {
	bounded := &boundedListener{
		Listener: ln, limits: c, perAddress: max(1, c.Most/2), open: map[*boundedConn]struct{}{}, byAddress: map[string]int{}, idle: list.New(),
	}
	bounded.freed.L = &bounded.mu
	srv.ConnState = bounded.changed
	ln = bounded
	if config != nil {
		ln = tls.NewListener(ln, config)
	}
	return srv.Serve(ln) //nolint:wrapcheck // it is the server's own
}

// boundedListener counts its connections, and knows which are idle.
type boundedListener struct {
	net.Listener

	limits     Connections
	perAddress int

	mu        sync.Mutex
	freed     sync.Cond // a connection ended or became idle, or the listener is closed
	closed    bool
	open      map[*boundedConn]struct{}
	byAddress map[string]int
	idle      *list.List // of *boundedConn, that which has been for longest first
}

type boundedConn struct {
	net.Conn

	from    *boundedListener
	address string // "" of a trusted proxy
	idle    *list.Element
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // the server knows the errors of a listener
		}
		if c := l.admit(conn); c != nil {
			return c, nil
		}
		_ = conn.Close() // its address has too many that are all at work
	}
}

// admit waits until there may be one more connection; nil: not one of this address.
func (l *boundedListener) admit(conn net.Conn) *boundedConn {
	c := &boundedConn{Conn: conn, from: l}
	peer, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil || !l.limits.Trusted.has(peer.Addr().Unmap()) {
		c.address = auth.AddressOf(conn.RemoteAddr().String())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.address != "" && l.perAddress < l.limits.Most && l.byAddress[c.address] >= l.perAddress && !l.evict(c.address) {
		return nil
	}
	for len(l.open) >= l.limits.Most && !l.evict("") && !l.closed {
		l.freed.Wait()
	}
	l.open[c] = struct{}{}
	l.byAddress[c.address]++
	return c
}

// evict closes the connection that has been idle for longest, of an address or, for "", of all; false when none is.
func (l *boundedListener) evict(address string) bool {
	for e := l.idle.Front(); e != nil; e = e.Next() {
		c := e.Value.(*boundedConn) //nolint:forcetypeassert // the list holds nothing else
		if address == "" || c.address == address {
			l.forget(c)
			_ = c.Conn.Close()
			return true
		}
	}
	return false
}

// forget takes a connection out of the count. mu is held.
func (l *boundedListener) forget(c *boundedConn) {
	if _, is := l.open[c]; !is {
		return
	}
	delete(l.open, c)
	l.byAddress[c.address]--
	if l.byAddress[c.address] == 0 {
		delete(l.byAddress, c.address)
	}
	l.busy(c)
	l.freed.Signal()
}

// busy notes that a connection is not idle. mu is held.
func (l *boundedListener) busy(c *boundedConn) {
	if c.idle != nil {
		l.idle.Remove(c.idle)
		c.idle = nil
	}
}

// changed is the server's ConnState.
func (l *boundedListener) changed(conn net.Conn, state http.ConnState) {
	if secure, is := conn.(*tls.Conn); is {
		conn = secure.NetConn()
	}
	c, ours := conn.(*boundedConn)
	if !ours {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy(c)
	if _, is := l.open[c]; is && state == http.StateIdle {
		c.idle = l.idle.PushBack(c)
		l.freed.Signal()
	}
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.from.mu.Lock()
	c.from.forget(c)
	c.from.mu.Unlock()
	if err := c.Conn.Close(); err != nil {
		return fmt.Errorf("api: %w", err)
	}
	return nil
}

// Close implements net.Listener.
func (l *boundedListener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.freed.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close() //nolint:wrapcheck // the server knows the errors of a listener
}
