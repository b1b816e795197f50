package auth

import (
	"crypto/sha256"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"dibs/api/wire"
	"dibs/internal/caller"
	"dibs/internal/reread"
)

// nobody is the actor of a service without tokens.
const nobody = "anonymous"

// Gate tells what a request may do.
type Gate struct {
	open   bool
	tokens *reread.Value[map[digest]Grant]
	clock  func() time.Time
}

// New makes a Gate for what listens on addr. Errors: ErrAddr, *SettingError.
func New(addr string, tokens Tokens, log *slog.Logger) (*Gate, error) {
	home, err := isHome(addr)
	if err != nil {
		return nil, err
	}
	g := &Gate{open: tokens.None(), clock: time.Now}
	g.tokens, err = reread.New(log, func() (map[digest]Grant, error) { return tokens.read(shortest(home)) }, tokens.paths()...)
	return g, err
}

// Open tells whether every request may do everything: no token is set.
func (g *Gate) Open() bool { return g.open }

// Check refuses a request unless it may do what needs one of the scopes in need. It fills in the caller of the request's context.
func (g *Gate) Check(r *http.Request, need Scope) *wire.Problem {
	who := caller.Of(r.Context())
	if g.open {
		who.Actor = nobody
		return nil
	}
	if need == Open {
		return nil
	}
	grant, p := g.Grant(bearer(r.Header))
	if p != nil {
		return p
	}
	if !grant.May(need) {
		return wire.Refuse(wire.CodeForbidden)
	}
	who.Actor, who.User = grant.Actor, grant.onlyFor(need)
	return nil
}

// Grant is what a token is good for now. Problems: unauthorized.
func (g *Gate) Grant(token string) (Grant, *wire.Problem) {
	if token == "" {
		return Grant{}, wire.Refuse(wire.CodeUnauthorized)
	}
	grant, known := g.tokens.Get()[sha256.Sum256([]byte(token))]
	if !known || !grant.Until.IsZero() && !g.clock().Before(grant.Until) {
		return Grant{}, wire.Refuse(wire.CodeUnauthorized)
	}
	return grant, nil
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
