// Package signin is who may see the console: signing in and out, and the
// sessions between them.
package signin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"dibs/api/wire"
	"dibs/internal/caller"
	"dibs/internal/seal"
)

// Path is the console's path.
const Path = "/console"

// Ended stores, for all API processes, which sessions were signed out.
type Ended interface {
	// EndSession records a session as ended, for a time.
	EndSession(ctx context.Context, id string, keep time.Duration) error
	SessionEnded(ctx context.Context, id string) (bool, error)
	// UseOnce records an id for a time, and reports whether it is the first
	// use.
	UseOnce(ctx context.Context, id string, keep time.Duration) (isFirst bool, err error)
}

// Who is the signed-in user.
type Who struct {
	Name  string
	Acts  bool      // may change campaigns
	Until time.Time // expiry of the token; zero: never
}

// Config is what a Gate needs.
type Config struct {
	// why a request's token may not read; nil if it may
	MayRead func(r *http.Request) *wire.Problem
	Who     func(r *http.Request) Who // the token's user; refuses and records nothing
	Open    bool                      // there are no tokens, so no sign-in
	// seals sessions, the same in all API processes; "" generates one for
	// this process
	Secret string
	Ended  Ended
	// writes a sign-in or sign-out to the audit log
	Note   func(r *http.Request, action string)
	Logger *slog.Logger
}

// Pages are what a Gate answers with.
type Pages struct {
	SignIn func(w http.ResponseWriter, status int, page Page)
	Refuse func(w http.ResponseWriter, r *http.Request, s *Session, p *wire.Problem)
}

// Gate admits requests that have a session.
type Gate struct {
	cfg   Config
	pages Pages
	seal  *seal.Sealer
	links *seal.Sealer
}

// New makes a Gate.
func New(cfg Config, pages Pages) (*Gate, error) {
	g := &Gate{cfg: cfg, pages: pages}
	var err error
	g.seal, err = seal.New(cfg.Secret, "console session")
	if err != nil {
		return nil, fmt.Errorf("signin: %w", err)
	}
	g.links, err = seal.New(cfg.Secret, linkPurpose)
	if err != nil {
		return nil, fmt.Errorf("signin: %w", err)
	}
	return g, nil
}

// Handler answers a request of a session.
type Handler = func(w http.ResponseWriter, r *http.Request, s *Session)

// IsForeign reports whether a page of another site sent a request.
func IsForeign(r *http.Request) bool {
	var origins http.CrossOriginProtection
	return origins.Check(asBrowsersSay(r)) != nil
}

// asBrowsersSay returns the request with Host in the form of an Origin: the
// host of the address bar, if a trusted proxy sends it, in lower case,
// without the default port.
func asBrowsersSay(r *http.Request) *http.Request {
	host := strings.ToLower(cmp.Or(forwarded(r, "X-Forwarded-Host"), r.Host))
	scheme, _, _ := strings.Cut(r.Header.Get("Origin"), "://")
	if port := map[string]string{"http": ":80", "https": ":443"}[scheme]; port != "" {
		host = strings.TrimSuffix(host, port)
	}
	same := *r
	same.Host = host
	return &same
}

// forwarded is the first proxy's value of a header. Package api removes
// values from untrusted peers.
func forwarded(r *http.Request, header string) string {
	first, _, _ := strings.Cut(r.Header.Get(header), ",")
	return strings.TrimSpace(first)
}

// SignedIn accepts a request with a session whose token may read. It passes
// the token on in the Authorization header, for the API.
func (g *Gate) SignedIn(next Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := g.session(r)
		if s == nil && g.cfg.Open {
			s = newSession("")
		}
		if s == nil {
			g.toSignIn(w, r)
			return
		}
		switch ended, err := g.ended(r.Context(), s); {
		case ended:
			g.setCookie(w, r, "", -1)
			g.toSignIn(w, r)
			return
		case err != nil && !isRead(r): // pages are needed while Redis is unreachable, too
			g.cfg.Logger.WarnContext(r.Context(), "it is not known whether a session of the console was ended; is redis up?", slog.Any("error", err))
			g.pages.Refuse(w, r, s, &wire.Problem{
				Code: wire.CodeUnavailable, Detail: "Redis does not answer, so it is not known whether you signed out elsewhere. Nothing was done.",
			})
			return
		}
		if !isRead(r) && !s.allows(r) {
			g.pages.Refuse(w, r, s, &wire.Problem{
				Code: wire.CodeForbidden, Detail: "The form is not of this session. Nothing was done. Load the page again and send it once more.",
			})
			return
		}
		r = s.authorize(r)
		if p := g.cfg.MayRead(r); p != nil && p.Code == wire.CodeUnauthorized {
			g.toSignIn(w, r)
			return
		} else if p != nil {
			g.pages.Refuse(w, r, s, p)
			return
		}
		s.Who = g.cfg.Who(r)
		g.keep(w, r, s)
		next(w, r, s)
	}
}

func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// WhileSignedIn ends a stream with its session and its token.
func (g *Gate) WhileSignedIn(r *http.Request, s *Session) {
	caller.Of(r.Context()).Still = func() bool {
		ended, _ := g.ended(r.Context(), s) // as on other pages, an unreachable Redis ends nothing
		return !ended && !s.over(time.Now()) && g.cfg.MayRead(r) == nil
	}
}

// toSignIn redirects to the sign-in page. A script's request is refused
// instead.
func (g *Gate) toSignIn(w http.ResponseWriter, r *http.Request) {
	if !isRead(r) || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		wire.Refuse(wire.CodeUnauthorized).Write(w)
		return
	}
	to := ""
	if path := r.URL.EscapedPath(); path != Path && path != Path+"/" {
		to = "?to=" + url.QueryEscape(path)
	}
	http.Redirect(w, r, Path+"/sign-in"+to, http.StatusSeeOther)
}
