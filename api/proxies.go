package api

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks of the proxies whose X-Forwarded-For and
// X-Forwarded-Host are believed.
type Proxies []netip.Prefix

func (p Proxies) has(ip netip.Addr) bool {
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(ip) })
}

// client is the address that a request of a trusted proxy comes from: the
// last one in X-Forwarded-For that is not such a proxy. What stands before
// it was written by the client.
func (p Proxies) client(r *http.Request) string {
	client := r.RemoteAddr
	hops := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for _, hop := range slices.Backward(hops) {
		ip, err := parseHop(strings.TrimSpace(hop))
		if err != nil {
			break
		}
		client = ip.String()
		if !p.has(ip) {
			break
		}
	}
	return client
}

// take has a request carry what trusted proxies say of it, and nothing
// that a client says in their place.
func (p Proxies) take(r *http.Request) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !p.has(peer.Addr().Unmap()) {
		delete(r.Header, "X-Forwarded-Host")
		return
	}
	r.RemoteAddr = p.client(r)
}

func parseHop(hop string) (netip.Addr, error) {
	if withPort, err := netip.ParseAddrPort(hop); err == nil {
		return withPort.Addr().Unmap(), nil
	}
	ip, err := netip.ParseAddr(strings.Trim(hop, "[]"))
	return ip.Unmap().WithZone(""), err
}
