package signin

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"dibs/api/wire"
	"dibs/internal/seal"
	"dibs/models"
)

// Page is the sign-in page.
type Page struct {
	To      string
	Refused string
	Next    string // target of the redirect after signing in
}

// GetSignIn shows the sign-in page, or signs in by a link.
func (g *Gate) GetSignIn(w http.ResponseWriter, r *http.Request) {
	if g.cfg.Open {
		http.Redirect(w, r, Path, http.StatusSeeOther)
		return
	}
	page := Page{To: r.URL.Query().Get("to")}
	if text := r.URL.Query().Get("link"); text != "" {
		page.Refused = g.signInByLink(w, r, text)
		if page.Refused == "" {
			page.Next = localPath(page.To)
			// No redirect: a browser that came from another site would send
			// no cookie with it.
			w.Header().Set("Refresh", "0; url="+page.Next)
		}
	}
	g.pages.SignIn(w, http.StatusOK, page)
}

const (
	linkPurpose = "console link"
	// LinkFor is how long a sign-in link is valid, for one use.
	LinkFor = 5 * time.Minute
)

// link signs in the first user who opens it.
type link struct {
	ID    string    `json:"id"`
	Token string    `json:"token"`
	Until time.Time `json:"until"`
}

// Link returns the path of a link that signs in with a token, once within
// LinkFor, and opens a page of the console. secret is that of Config.
func Link(secret, token, to string) (string, error) {
	sealer, err := seal.New(secret, linkPurpose)
	if err != nil {
		return "", fmt.Errorf("signin: %w", err)
	}
	text, err := sealer.Seal(link{ID: rand.Text(), Token: token, Until: time.Now().Add(LinkFor)})
	if err != nil {
		return "", fmt.Errorf("signin: %w", err)
	}
	return Path + "/sign-in?" + url.Values{"link": {text}, "to": {to}}.Encode(), nil
}

// signInByLink starts a link's session, or returns why not.
func (g *Gate) signInByLink(w http.ResponseWriter, r *http.Request, text string) (refused string) {
	const over = "The link is not known here, was used before, or is too old. Sign in with a token."
	var l link
	if !g.links.Open(text, &l) || time.Now().After(l.Until) {
		return over
	}
	s := newSession(l.Token)
	switch p := g.cfg.MayRead(s.authorize(r)); {
	case p != nil && p.Code == wire.CodeUnavailable:
		return p.JSON().Detail
	case p != nil:
		return over
	}
	ctx, cancel := context.WithTimeout(r.Context(), endedTimeout)
	defer cancel()
	isFirst, err := g.cfg.Ended.UseOnce(ctx, l.ID, LinkFor)
	switch {
	case err != nil:
		return "Redis does not answer, so it is not known whether the link was used before. Try again in a moment."
	case !isFirst:
		return over
	}
	g.keep(w, r, s)
	g.cfg.Note(r, models.AuditSignedIn)
	return ""
}

// PostSignIn signs in with a token.
func (g *Gate) PostSignIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, formMax)
	token := strings.TrimSpace(r.PostFormValue("token"))
	page := Page{To: r.PostFormValue("to")}
	s := newSession(token)
	// it limits an address' wrong tokens, and accepts a right one whatever
	// came before
	p := g.cfg.MayRead(s.authorize(r))
	switch {
	case p != nil && p.Code == wire.CodeRateLimited:
		page.Refused = "This token is not known here. Too many attempts: wait some seconds and try again."
		g.pages.SignIn(w, http.StatusTooManyRequests, page)
	case token == "" || len(token) > tokenMax || p != nil && p.Code == wire.CodeUnauthorized:
		page.Refused = "This token is not known here."
		g.pages.SignIn(w, http.StatusUnauthorized, page)
	case p != nil && p.Code == wire.CodeUnavailable:
		page.Refused = p.JSON().Detail
		g.pages.SignIn(w, p.GetStatus(), page)
	case p != nil:
		page.Refused = "This token may not read campaigns. Sign in with a viewer's or an admin's."
		g.pages.SignIn(w, p.GetStatus(), page)
	default:
		g.keep(w, r, s)
		g.cfg.Note(r, models.AuditSignedIn)
		http.Redirect(w, r, localPath(page.To), http.StatusSeeOther)
	}
}

// localPath is to if that is a console path, else Path.
func localPath(to string) string {
	if strings.HasPrefix(to, Path+"/") && !strings.Contains(to, "..") && !strings.ContainsAny(to, "\\\r\n") {
		return to
	}
	return Path
}

// PostSignOut ends the session for every copy of its cookie.
func (g *Gate) PostSignOut(w http.ResponseWriter, r *http.Request, s *Session) {
	if err := g.cfg.Ended.EndSession(r.Context(), s.ID, time.Until(s.StartedAt.Add(sessionMax))); err != nil {
		g.cfg.Logger.WarnContext(r.Context(), "a session of the console can't be ended; is redis up?", slog.Any("error", err))
		g.pages.Refuse(w, r, s, &wire.Problem{
			Code: wire.CodeUnavailable, Detail: "Redis does not answer, so the session is not ended. Sign out again in a moment.",
		})
		return
	}
	g.cfg.Note(r, models.AuditSignedOut)
	g.setCookie(w, r, "", -1)
	http.Redirect(w, r, Path+"/sign-in", http.StatusSeeOther)
}
