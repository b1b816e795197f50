package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"dibs/api/wire"
)

// scope is what a token may do; scopes add up.
type scope uint8

const (
	scopeAdmin      scope = 1 << iota // everything
	scopeStorefront                   // claims, redeems, releases, reads claims
	scopeViewer                       // reads
	// scopeOpen asks for no token.
	scopeOpen scope = 0
)

// Tokens are the bearer tokens that this process takes; an empty one is none. Without any token every request may do everything,
// see CheckListen.
type Tokens struct{ Admin, Storefront, Viewer string }

// none tells whether no token is set.
func (t Tokens) none() bool { return t == Tokens{} }

// ErrListen says that an address may not be listened on without tokens.
var ErrListen = errors.New("api: refusing to listen beyond loopback without tokens")

// CheckListen refuses an address that can't be read, and, when no token is set, one that other machines may reach. A host name other
// than localhost is refused then, too: what it resolves to may change.
func CheckListen(addr string, tokens Tokens) error {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.DefaultResolver.LookupPort(context.Background(), "tcp", port) // a number, or a name of this machine's list
	}
	if err != nil {
		return fmt.Errorf("%w: Addr %q: %w", ErrConfig, addr, err)
	}
	if !tokens.none() || strings.EqualFold(host, "localhost") {
		return nil
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%w: %q: set a token or listen on 127.0.0.1", ErrListen, addr)
}

// gate checks bearer tokens. It compares digests, so that the time it takes tells neither the content nor the length of a token.
type gate struct {
	open bool
	keys []gateKey
}

type gateKey struct {
	digest [sha256.Size]byte
	scope  scope
}

func newGate(t Tokens) *gate {
	g := &gate{open: t.none()}
	for _, k := range []struct {
		token string
		scope scope
	}{{t.Admin, scopeAdmin}, {t.Storefront, scopeStorefront}, {t.Viewer, scopeViewer}} {
		if k.token != "" {
			g.keys = append(g.keys, gateKey{sha256.Sum256([]byte(k.token)), k.scope})
		}
	}
	return g
}

// refuse returns nil when the request may do what needs one of the scopes in need.
func (g *gate) refuse(r *http.Request, need scope) *wire.Problem {
	if g.open || need == scopeOpen {
		return nil
	}
	given := g.scopes(bearer(r.Header))
	switch {
	case given == 0:
		return wire.Refuse(wire.CodeUnauthorized)
	case given&(need|scopeAdmin) == 0:
		return wire.Refuse(wire.CodeForbidden)
	default:
		return nil
	}
}

// scopes compares with every key, so that the time it takes does not tell which one fits.
func (g *gate) scopes(token string) scope {
	if token == "" {
		return 0
	}
	digest := sha256.Sum256([]byte(token))
	var given scope
	for i := range g.keys {
		if subtle.ConstantTimeCompare(digest[:], g.keys[i].digest[:]) == 1 {
			given |= g.keys[i].scope
		}
	}
	return given
}

// bearer returns the token of the one Authorization header, or "".
func bearer(h http.Header) string {
	const scheme = "Bearer "
	values := h["Authorization"]
	if len(values) != 1 || len(values[0]) <= len(scheme) || !strings.EqualFold(values[0][:len(scheme)], scheme) {
		return ""
	}
	return values[0][len(scheme):]
}
