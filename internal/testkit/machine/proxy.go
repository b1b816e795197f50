package machine

import (
	"bytes"
	"io"
	"net"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// Proxy starts a toxiproxy in this process in front of upstream (host:port)
// and stops it with the test. Its address is Listen. Stop and Start cut and
// restore it. Toxics.AddToxicJson adds delays, cuts and limits.
func Proxy(t testing.TB, upstream string) *toxiproxy.Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	port, release, err := ReservePort()
	require.NoError(t, err)
	proxy := toxiproxy.NewProxy(server, t.Name(), Loopback(port), upstream)
	require.NoError(t, proxy.Start())
	t.Cleanup(func() {
		proxy.Stop()
		release()
	})
	return proxy
}

// Rewriting returns the address of a proxy in front of upstream
// that replaces a text in replies by another of the same length.
// So a server seems to lack a field or a command.
func Rewriting(t testing.TB, upstream, text, by string) string {
	t.Helper()
	require.Len(t, by, len(text))
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			front, err := ln.Accept()
			if err != nil {
				return
			}
			back, err := new(net.Dialer).DialContext(t.Context(), "tcp", upstream)
			if err != nil {
				_ = front.Close()
				return
			}
			go func() {
				_, _ = io.Copy(back, front)
				_ = back.Close()
			}()
			go rewrite(front, back, []byte(text), []byte(by))
		}
	}()
	return ln.Addr().String()
}

// rewrite copies until the connection ends. It replaces within
// each chunk read.
func rewrite(to, from net.Conn, text, by []byte) {
	buffer := make([]byte, 1<<20)
	for {
		n, err := from.Read(buffer)
		_, _ = to.Write(bytes.ReplaceAll(buffer[:n], text, by))
		if err != nil {
			_ = to.Close()
			return
		}
	}
}
