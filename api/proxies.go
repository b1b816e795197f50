package api

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks of proxies whose X-Forwarded-For and
// X-Forwarded-Host are trusted.
type Proxies []netip.Prefix

func (p Proxies) has(ip netip.Addr) bool {
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(ip) })
}

// client is the address of a request that a trusted proxy forwards: the
// last one in X-Forwarded-For that isn't a trusted proxy. The client may
// have forged those before it.
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

// take applies what trusted proxies say of a request, and removes what only
// a client says.
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
