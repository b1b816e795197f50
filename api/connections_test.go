package api_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
)

// office is a server whose connections are few. A request for /work is at work until work is closed.
type office struct {
	t    *testing.T
	ln   net.Listener
	tls  bool
	busy chan struct{} // each request for /work sends
	work chan struct{}
	idle chan struct{} // sends when a connection has become idle
}

// idleTimeout is what the server asks of a connection that has become idle, and of no other.
const idleTimeout = time.Hour

// idleListener tells when a connection has become idle, which is after its answer was read.
type idleListener struct {
	net.Listener

	idle chan struct{}
}

func (l idleListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return idleConn{conn, l.idle}, err
}

type idleConn struct {
	net.Conn

	idle chan struct{}
}

func (c idleConn) SetReadDeadline(t time.Time) error {
	if time.Until(t) > idleTimeout/2 {
		c.idle <- struct{}{}
	}
	return c.Conn.SetReadDeadline(t)
}

func open(t *testing.T, c api.Connections, secure *tls.Config) *office {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o := &office{t: t, ln: ln, tls: secure != nil, busy: make(chan struct{}), work: make(chan struct{}), idle: make(chan struct{}, 100)}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, IdleTimeout: idleTimeout, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/work" {
			o.busy <- struct{}{}
			<-o.work
		}
	})}
	served := make(chan error)
	go func() { served <- c.Serve(srv, idleListener{ln, o.idle}, secure) }()
	t.Cleanup(func() {
		_ = srv.Close()
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return o
}

// guest is a connection to an office.
type guest struct {
	net.Conn

	o   *office
	buf *bufio.Reader
}

// dial connects from an address of this machine.
func (o *office) dial(from string) *guest {
	o.t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(o.t.Context(), "tcp", o.ln.Addr().String())
	require.NoError(o.t, err)
	o.t.Cleanup(func() { _ = conn.Close() })
	if o.tls {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	require.NoError(o.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return &guest{conn, o, bufio.NewReader(conn)}
}

func (g *guest) send(path string) {
	_, err := io.WriteString(g, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(g.o.t, err)
}

// answered reads an answer; an error when the connection is closed.
func (g *guest) answered() error {
	res, err := http.ReadResponse(g.buf, nil)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	return err
}

func (g *guest) ask() error {
	_, err := io.WriteString(g, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if err == nil {
		err = g.answered()
	}
	if err == nil {
		<-g.o.idle
	}
	return err
}

// Connections that do nothing do not keep others out: the one that is idle for longest makes way.
func TestConnections_IdleOnesMakeWay(t *testing.T) {
	t.Parallel()
	files := api.TLS{Cert: filepath.Join(t.TempDir(), "cert"), Key: filepath.Join(t.TempDir(), "key")}
	certify(t, files, 1)
	secure, err := files.Config(nil)
	require.NoError(t, err)
	for name, config := range map[string]*tls.Config{"plain": nil, "tls": secure} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := open(t, api.Connections{Most: 4}, config)
			atWork := o.dial("127.0.0.1")
			atWork.send("/work")
			<-o.busy
			first, second := o.dial("127.0.0.2"), o.dial("127.0.0.3")
			require.NoError(t, first.ask())
			require.NoError(t, second.ask())
			for i := range 20 {
				require.NoError(t, o.dial("127.0.0.4").ask(), i)
			}
			require.NoError(t, second.ask(), "those of one address give way to each other first")
			require.NoError(t, o.dial("127.0.0.5").ask())
			require.NoError(t, o.dial("127.0.0.6").ask())
			require.Error(t, first.ask(), "the one that was idle for longest")
			close(o.work)
			require.NoError(t, atWork.answered(), "who is at work is not disturbed")
		})
	}
}

// One address has half of them at most, when they are all at work.
func TestConnections_AnAddressHasHalf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits api.Connections
		served bool
	}{
		"one address":     {api.Connections{Most: 4}, false},
		"a trusted proxy": {api.Connections{Most: 4, Trusted: api.Proxies{netip.MustParsePrefix("127.0.0.2/32")}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := open(t, c.limits, nil)
			for range 2 {
				o.dial("127.0.0.2").send("/work")
				<-o.busy
			}
			require.Equal(t, c.served, o.dial("127.0.0.2").ask() == nil)
			require.NoError(t, o.dial("127.0.0.3").ask(), "others have the rest")
			close(o.work)
		})
	}
}

// More connections than there may be wait, and are served when others go.
func TestConnections_WaitForThoseThatAreAtWork(t *testing.T) {
	t.Parallel()
	o := open(t, api.Connections{Most: 1}, nil)
	first, second := o.dial("127.0.0.1"), o.dial("127.0.0.1")
	first.send("/work")
	<-o.busy
	answered := make(chan error)
	go func() { answered <- second.ask() }()
	select {
	case err := <-answered:
		require.Fail(t, "a second one was served beside the first", "%v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(o.work)
	require.NoError(t, <-answered)
}
