package api

import (
	"crypto/tls"
	"net"
	"net/http"

	"golang.org/x/net/netutil"
)

// Serve serves srv on ln, with TLS if config isn't nil. At most so many
// connections are open. More wait until one ends. Preventing abuse of
// connections is the proxy's job.
func Serve(srv *http.Server, ln net.Listener, most int, config *tls.Config) error {
	ln = netutil.LimitListener(ln, most)
	if config != nil {
		ln = tls.NewListener(ln, config)
	}
	return srv.Serve(ln) //nolint:wrapcheck // it is the server's own
}
