package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dibs/api/wire"
	"dibs/internal/caller"
	"dibs/internal/reread"
)

// Config of a Gate.
type Config struct {
	Addr   string // the listen address
	Tokens Tokens
	Logger *slog.Logger
	// Refused gets reports of refused tokens, rarely enough to store them;
	// nil: no reports.
	Refused    func(context.Context, Refusal)
	Reloaded   func(Reload)          // called after each change of the tokens' files; nil: not called
	Registerer prometheus.Registerer // nil: no metrics
	Clock      func() time.Time      // default time.Now
}

// Reload is a change of the tokens' files, by the tokens' names.
type Reload struct {
	Tokens  int      `json:"tokens"` // now valid
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
}

func newReload(before, after map[digest]Grant) Reload {
	r := Reload{Tokens: len(after)}
	for token, grant := range after {
		if _, was := before[token]; !was {
			r.Added = append(r.Added, grant.Actor)
		}
	}
	for token, grant := range before {
		if _, is := after[token]; !is {
			r.Removed = append(r.Removed, grant.Actor)
		}
	}
	slices.Sort(r.Added)
	slices.Sort(r.Removed)
	return r
}

// Gate decides what a request may do.
type Gate struct {
	open     bool
	clock    func() time.Time
	tokens   *reread.Value[table]
	jwts     *verifier // nil: no JWTs are accepted
	refusals *refusals
}

// New makes a Gate. Errors: ErrAddr, *SettingError.
func New(cfg Config) (*Gate, error) {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	home, err := isHome(cfg.Addr)
	if err != nil {
		return nil, err
	}
	g := &Gate{open: cfg.Tokens.none(), clock: cfg.Clock}
	var inForce table // reads don't overlap
	read := func() (table, error) {
		all, err := cfg.Tokens.read(shortest(home))
		if err == nil || errors.Is(err, reread.ErrPartly) {
			if inForce.grants != nil && cfg.Reloaded != nil {
				cfg.Reloaded(newReload(inForce.grants, all.grants))
			}
			inForce = all
		}
		return all, err
	}
	g.tokens, err = reread.New(cfg.Logger, read, cfg.Tokens.paths()...)
	if err != nil {
		return nil, err
	}
	g.jwts, err = newVerifier(cfg.Tokens.JWT, cfg.Logger, cfg.Clock)
	if err != nil {
		return nil, err
	}
	g.refusals = newRefusals(&cfg)
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(sources{g, cfg.Tokens})
	}
	return g, nil
}

// Open reports whether every request may do everything, as no token is set.
func (g *Gate) Open() bool { return g.open }

// Check refuses a request unless its token has one of the scopes in need.
// It sets the caller in the request's context.
func (g *Gate) Check(r *http.Request, need Scope) *wire.Problem {
	who := caller.Of(r.Context())
	if g.open {
		who.Actor = caller.Anonymous
		return nil
	}
	if need == Open {
		return nil
	}
	grant, p := g.Grant(r.Context(), r.RemoteAddr, Bearer(r.Header))
	if p != nil {
		return p
	}
	who.Actor = grant.Actor
	who.User = grant.onlyFor(need)
	if !grant.May(need) {
		g.refusals.note(r.Context(), Refusal{Actor: grant.Actor, Address: AddressOf(r.RemoteAddr), Reason: string(reasonForbidden)})
		return &wire.Problem{Code: wire.CodeForbidden, Detail: "This takes a token of the scope " + (need | Admin).String() +
			". The token that was sent has " + grant.Scopes.String() + "."}
	}
	return nil
}

// Grant is what a token from a remote address allows now. Problems:
// unauthorized, rate_limited, unavailable. A good token that was seen
// before is accepted whatever else its address sends.
func (g *Gate) Grant(ctx context.Context, remote, token string) (Grant, *wire.Problem) {
	if token == "" {
		return Grant{}, wire.Refuse(wire.CodeUnauthorized)
	}
	grant, found := g.tokens.Get().grants[sha256.Sum256([]byte(token))]
	switch {
	case found && (grant.Until.IsZero() || g.clock().Before(grant.Until)):
		return grant, nil
	case found:
		return Grant{}, g.refusals.refuse(ctx, remote, grant.Actor, reasonExpired)
	case g.jwts == nil || !isJWT(token):
		return Grant{}, g.refusals.guessed(ctx, remote)
	}
	return g.grantJWT(ctx, remote, token)
}

// grantJWT is Grant for a JWT. Verifying a signature is slow, so it is done
// only if the claims are good.
func (g *Gate) grantJWT(ctx context.Context, remote, token string) (Grant, *wire.Problem) {
	grant, found := g.jwts.known(ctx, token)
	if found {
		return grant, nil
	}
	read, err := g.jwts.read(ctx, token)
	switch {
	case errors.Is(err, errKeys):
		return Grant{}, &wire.Problem{
			Code: wire.CodeUnavailable, Detail: "The issuer's keys can't be read, so the token can't be verified. Send the request again.",
		}
	case isExpired(err):
		return Grant{}, g.refusals.refuse(ctx, remote, grant.Actor, reasonExpired)
	case err != nil:
		return Grant{}, g.refusals.refuse(ctx, remote, "", reasonUnknown)
	}
	if p := g.refusals.admit(ctx, remote); p != nil {
		return Grant{}, p
	}
	switch grant, err = g.jwts.verify(token, read); {
	case errors.Is(err, errSignature):
		return Grant{}, g.refusals.refuse(ctx, remote, "", reasonForged)
	case err != nil:
		return Grant{}, g.refusals.refuse(ctx, remote, "", reasonUnknown)
	}
	return grant, nil
}

// Bearer returns the token of the only Authorization header, or "". The
// scheme may be in either case, followed by blanks.
func Bearer(h http.Header) string {
	const scheme = "Bearer"
	values := h["Authorization"]
	if len(values) != 1 || len(values[0]) <= len(scheme) || !strings.EqualFold(values[0][:len(scheme)], scheme) {
		return ""
	}
	behind := values[0][len(scheme):]
	token := strings.TrimLeft(behind, " \t")
	if len(token) == len(behind) { // the scheme is only a prefix of a longer word
		return ""
	}
	return token
}
