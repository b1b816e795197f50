package api

import (
	"net/http"
	"os"
	"strings"

	"dibs/api/auth"
	"dibs/api/console"
	"dibs/api/console/signin"
	"dibs/api/wire"
)

// makeConsole makes the console if it is configured. It calls this process'
// routes with the user's own token.
func (s *Server) makeConsole(deps *ConsoleDeps) (err error) {
	if deps == nil {
		return nil
	}
	need := func(scope auth.Scope) func(*http.Request) *wire.Problem {
		return func(r *http.Request) *wire.Problem { return s.gate.Check(r, scope) }
	}
	s.console, err = console.New(console.Config{
		API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }),
		SignIn: signin.Config{
			MayRead: need(auth.Viewer), Who: s.who, Open: s.gate.Open(), Secret: sharedSecret(&s.cfg.Tokens), Ended: deps.Ended,
			Note: s.noteSession, Logger: s.cfg.Logger,
		},
		MayAct: need(auth.Admin), Live: s.live, Busy: s.busy, Health: deps.Health, Campaigns: deps.Campaigns, Records: deps.Records,
		Books: deps.Books, Parked: deps.Parked, Settings: deps.Settings, Version: s.cfg.Version, Logger: s.cfg.Logger,
	})
	return err
}

// SignInPath returns the path of a link that signs in to the console by a
// token, once and for a short time, and redirects to a page. The service
// must have these tokens.
func SignInPath(tokens Tokens, token, to string) (string, error) {
	return signin.Link(sharedSecret(&tokens), token, to)
}

func (s *Server) busy(most int) []string {
	tallies := s.claiming.Busiest(most)
	ids := make([]string, len(tallies))
	for i := range tallies {
		ids[i] = tallies[i].CampaignID
	}
	return ids
}

func (s *Server) who(r *http.Request) signin.Who {
	if s.gate.Open() {
		return signin.Who{Name: "anybody", Acts: true}
	}
	grant, p := s.gate.Grant(r.Context(), r.RemoteAddr, auth.Bearer(r.Header))
	if p != nil {
		return signin.Who{}
	}
	return signin.Who{Name: grant.Actor, Acts: grant.May(auth.Admin), Until: grant.Until}
}

// sharedSecret is what only a deployment's API processes know: its tokens.
// "" if there are none, or only JWTs.
func sharedSecret(t *auth.Tokens) string {
	known := []string{t.Admin, t.Storefront, t.Viewer}
	for _, path := range []string{t.AdminFile, t.StorefrontFile, t.ViewerFile, t.File} {
		text, err := os.ReadFile(path) //nolint:gosec // the operator's setting
		if err == nil {                // only "" fails: the gate has read the others
			known = append(known, string(text))
		}
	}
	if strings.Join(known, "") == "" {
		return ""
	}
	return strings.Join(known, "\n")
}
