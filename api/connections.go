package api

import (
	"crypto/tls"
	"net"
	"net/http"

	"golang.org/x/net/netutil"
)

// Serve serves srv on ln, with TLS if config is one, with so many
// connections at once; more wait until one ends. Who keeps them busy is a
// matter for the proxy in front.
func Serve(srv *http.Server, ln net.Listener, most int, config *tls.Config) error {
	ln = netutil.LimitListener(ln, most)
	if config != nil {
		ln = tls.NewListener(ln, config)
	}
	return srv.Serve(ln) //nolint:wrapcheck // it is the server's own
}
