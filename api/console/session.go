package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
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

const (
	cookieName = "dibs_console"
	// sessionFor is how long an unused session lasts. An open page uses it
	// every few seconds.
	sessionFor = 12 * time.Hour
	// sessionMax is how long any session lasts.
	sessionMax = 24 * time.Hour
	// endedTimeout bounds the check whether a session ended, which precedes
	// each page.
	endedTimeout = time.Second
	// renewAfter is the age at which a session's cookie is set again.
	renewAfter = 10 * time.Minute
	// tokenMax bounds a token, as it must fit in a cookie.
	tokenMax = 2500
	formMax  = 16 << 10
)

// session is a signed-in user. It is stored in a cookie that only API
// processes can read, so any of them can serve it. It ends with its token,
// after sessionFor without use, after sessionMax, or when its user signs
// out. Only the last needs Redis.
type session struct {
	ID        string    `json:"id"`
	Token     string    `json:"token"` // checked on each request
	CSRF      string    `json:"csrf"`  // required in each form
	StartedAt time.Time `json:"began"`
	At        time.Time `json:"at"` // when the cookie was set

	who Who
}

func newSession(token string) *session {
	return &session{ID: rand.Text(), Token: token, CSRF: rand.Text(), StartedAt: time.Now().UTC()}
}

func (s *session) over(now time.Time) bool {
	return now.Sub(s.At) > sessionFor && !s.At.IsZero() || now.Sub(s.StartedAt) > sessionMax
}

// ended reports whether a session was signed out. An error means unknown.
func (c *Console) ended(ctx context.Context, s *session) (bool, error) {
	if s.At.IsZero() { // service without tokens, so without a cookie
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, endedTimeout)
	defer cancel()
	return c.cfg.Ended.SessionEnded(ctx, s.ID)
}

func (c *Console) session(r *http.Request) *session {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	var s session
	if !c.seal.Open(cookie.Value, &s) || s.ID == "" || s.At.IsZero() || s.over(time.Now()) {
		return nil
	}
	return &s
}

// keep sets the cookie of a session whose cookie is missing or old.
func (c *Console) keep(w http.ResponseWriter, r *http.Request, s *session) {
	if time.Since(s.At) < renewAfter {
		return
	}
	s.At = time.Now().UTC()
	sealed, err := c.seal.Seal(s)
	if err != nil { // strings and times always marshal
		return
	}
	c.setCookie(w, r, sealed, int(sessionFor.Seconds()))
}

func (c *Console) setCookie(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // without TLS, on loopback, a browser would not send a secure one
		Name: cookieName, Value: value, Path: Path, MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: r.TLS != nil || strings.EqualFold(forwarded(r, "X-Forwarded-Proto"), "https"),
	})
}

func (s *session) allows(r *http.Request) bool {
	r.Body = http.MaxBytesReader(nil, r.Body, formMax)
	return subtle.ConstantTimeCompare([]byte(r.PostFormValue("csrf")), []byte(s.CSRF)) == 1
}

func (s *session) authorize(r *http.Request) *http.Request {
	r = r.WithContext(r.Context())
	r.Header = r.Header.Clone()
	r.Header.Del("Authorization")
	r.Header.Del("Cookie")
	if s.Token != "" {
		r.Header.Set("Authorization", "Bearer "+s.Token)
	}
	return r
}

type signInPage struct {
	To      string
	Refused string
	Next    string // target of the redirect after signing in
}

func (c *Console) getSignIn(w http.ResponseWriter, r *http.Request) {
	if c.cfg.Open {
		http.Redirect(w, r, Path, http.StatusSeeOther)
		return
	}
	page := signInPage{To: r.URL.Query().Get("to")}
	if text := r.URL.Query().Get("link"); text != "" {
		page.Refused = c.signInByLink(w, r, text)
		if page.Refused == "" {
			page.Next = localPath(page.To)
			// No redirect: a browser that came from another site would send
			// no cookie with it.
			w.Header().Set("Refresh", "0; url="+page.Next)
		}
	}
	c.show(w, nil, http.StatusOK, "sign-in", page)
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

// SignInPath returns the path of a link that signs in with a token, once
// within LinkFor, and opens a page of the console. secret is Config's.
func SignInPath(secret, token, to string) (string, error) {
	sealer, err := seal.New(secret, linkPurpose)
	if err != nil {
		return "", fmt.Errorf("console: %w", err)
	}
	text, err := sealer.Seal(link{ID: rand.Text(), Token: token, Until: time.Now().Add(LinkFor)})
	if err != nil {
		return "", fmt.Errorf("console: %w", err)
	}
	return Path + "/sign-in?" + url.Values{"link": {text}, "to": {to}}.Encode(), nil
}

// signInByLink starts a link's session, or returns why not.
func (c *Console) signInByLink(w http.ResponseWriter, r *http.Request, text string) (refused string) {
	const over = "The link is not known here, was used before, or is too old. Sign in with a token."
	var l link
	if !c.links.Open(text, &l) || time.Now().After(l.Until) {
		return over
	}
	s := newSession(l.Token)
	switch p := c.cfg.MayRead(s.authorize(r)); {
	case p != nil && p.Code == wire.CodeUnavailable:
		return problemOf(p).Detail
	case p != nil:
		return over
	}
	ctx, cancel := context.WithTimeout(r.Context(), endedTimeout)
	defer cancel()
	isFirst, err := c.cfg.Ended.UseOnce(ctx, l.ID, LinkFor)
	switch {
	case err != nil:
		return "Redis does not answer, so it is not known whether the link was used before. Try again in a moment."
	case !isFirst:
		return over
	}
	c.keep(w, r, s)
	c.cfg.Note(r, models.AuditSignedIn)
	return ""
}

func (c *Console) postSignIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, formMax)
	token := strings.TrimSpace(r.PostFormValue("token"))
	page := signInPage{To: r.PostFormValue("to")}
	s := newSession(token)
	// it limits an address' wrong tokens, and accepts a right one whatever
	// came before
	p := c.cfg.MayRead(s.authorize(r))
	switch {
	case p != nil && p.Code == wire.CodeRateLimited:
		page.Refused = "This token is not known here. Too many attempts: wait some seconds and try again."
		c.show(w, nil, http.StatusTooManyRequests, "sign-in", page)
	case token == "" || len(token) > tokenMax || p != nil && p.Code == wire.CodeUnauthorized:
		page.Refused = "This token is not known here."
		c.show(w, nil, http.StatusUnauthorized, "sign-in", page)
	case p != nil && p.Code == wire.CodeUnavailable:
		page.Refused = problemOf(p).Detail
		c.show(w, nil, p.GetStatus(), "sign-in", page)
	case p != nil:
		page.Refused = "This token may not read campaigns. Sign in with a viewer's or an admin's."
		c.show(w, nil, p.GetStatus(), "sign-in", page)
	default:
		c.keep(w, r, s)
		c.cfg.Note(r, models.AuditSignedIn)
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

// postSignOut ends the session for every copy of its cookie.
func (c *Console) postSignOut(w http.ResponseWriter, r *http.Request, s *session) {
	if err := c.cfg.Ended.EndSession(r.Context(), s.ID, time.Until(s.StartedAt.Add(sessionMax))); err != nil {
		c.cfg.Logger.WarnContext(r.Context(), "a session of the console can't be ended; is redis up?", slog.Any("error", err))
		c.refuse(w, r, s, &wire.Problem{
			Code: wire.CodeUnavailable, Detail: "Redis does not answer, so the session is not ended. Sign out again in a moment.",
		})
		return
	}
	c.cfg.Note(r, models.AuditSignedOut)
	c.setCookie(w, r, "", -1)
	http.Redirect(w, r, Path+"/sign-in", http.StatusSeeOther)
}
