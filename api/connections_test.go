package api_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
)

// Connections over the limit must wait, and be served when others close.
func TestServe_BoundsConnections(t *testing.T) {
	t.Parallel()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	served := make(chan error)
	go func() { served <- api.Serve(srv, ln, 1, nil) }()
	ask := func() (conn net.Conn, answered chan error) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", ln.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		answered = make(chan error, 1)
		go func() {
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				err = res.Body.Close()
			}
			answered <- err
		}()
		return conn, answered
	}
	first, answered := ask()
	require.NoError(t, <-answered)
	second, answered := ask()
	select {
	case err := <-answered:
		require.FailNow(t, "it did not wait", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, first.Close())
	require.NoError(t, <-answered)
	require.NoError(t, second.Close())
	require.NoError(t, srv.Close())
	require.ErrorIs(t, <-served, http.ErrServerClosed)
}
