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
	// sessionFor is how long a session lasts after it was last used. A
	// page that is open uses it every few seconds.
	sessionFor = 12 * time.Hour
	// sessionMax is how long a session lasts at most.
	sessionMax = 24 * time.Hour
	// endedTimeout bounds the question whether a session was ended, which
	// comes before each page.
	endedTimeout = 400 * time.Millisecond
	// renewAfter is how old a session's cookie may be before it is set
	// again.
	renewAfter = 10 * time.Minute
	// tokenMax bounds a token that a cookie has to hold.
	tokenMax = 2500
	formMax  = 16 << 10
)

// session is who is signed in. It is kept in a cookie that only API
// processes can read: any of them knows it. It ends with its token, when
// it was not used for sessionFor, after sessionMax, and when its owner
// signs out; the last is remembered in Redis.
type session struct {
	ID    string    `json:"id"`
	Token string    `json:"token"` // checked by each request
	CSRF  string    `json:"csrf"`  // each form has to carry it
	Began time.Time `json:"began"`
	At    time.Time `json:"at"` // of the cookie

	who Who
}

func newSession(token string) *session {
	return &session{ID: rand.Text(), Token: token, CSRF: rand.Text(), Began: time.Now().UTC()}
}

// over reports whether a session has lasted as long as it may.
func (s *session) over(now time.Time) bool {
	return now.Sub(s.At) > sessionFor && !s.At.IsZero() || now.Sub(s.Began) > sessionMax
}

// ended reports whether someone signed out of a session. Errors: it is not
// known.
func (c *Console) ended(ctx context.Context, s *session) (bool, error) {
	if s.At.IsZero() { // of a service without tokens: no cookie holds it
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, endedTimeout)
	defer cancel()
	return c.cfg.Ended.SessionEnded(ctx, s.ID)
}

// session reads the session of a request; nil when there is none.
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

// keep sets the cookie of a session that has none yet, or an old one.
func (c *Console) keep(w http.ResponseWriter, r *http.Request, s *session) {
	if time.Since(s.At) < renewAfter {
		return
	}
	s.At = time.Now().UTC()
	sealed, err := c.seal.Seal(s)
	if err != nil { // texts and times always marshal
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

// allows reports whether a form is of this session.
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
	Next    string // someone is signed in, and is led there
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
			// No redirect: a browser that came from another site would
			// send no cookie with it.
			w.Header().Set("Refresh", "0; url="+page.Next)
		}
	}
	c.show(w, nil, http.StatusOK, "sign-in", page)
}

const (
	linkPurpose = "console link"
	// LinkFor is how long a link that signs in may be used, once.
	LinkFor = 5 * time.Minute
)

// link signs in whoever opens it first.
type link struct {
	ID    string    `json:"id"`
	Token string    `json:"token"`
	Until time.Time `json:"until"`
}

// SignInPath makes the path of a link that signs in with a token, once
// within LinkFor, and leads to a page of the console. secret is that of
// Config.
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

// signInByLink begins the session of a link, and returns why not.
func (c *Console) signInByLink(w http.ResponseWriter, r *http.Request, text string) (refused string) {
	const over = "The link is not known here, was used before, or is too old. Sign in with a token."
	var l link
	if !c.links.Open(text, &l) || time.Now().After(l.Until) {
		return over
	}
	s := newSession(l.Token)
	if c.cfg.MayRead(s.authorize(r)) != nil {
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
	// it bounds the wrong tokens of an address, and lets a right one pass
	// whatever came before
	p := c.cfg.MayRead(s.authorize(r))
	switch {
	case p != nil && p.Code == wire.CodeRateLimited:
		page.Refused = "This token is not known here. Too many attempts: wait some seconds and try again."
		c.show(w, nil, http.StatusTooManyRequests, "sign-in", page)
	case token == "" || len(token) > tokenMax || p != nil && p.Code == wire.CodeUnauthorized:
		page.Refused = "This token is not known here."
		c.show(w, nil, http.StatusUnauthorized, "sign-in", page)
	case p != nil:
		page.Refused = "This token may not read campaigns. Sign in with a viewer's or an admin's."
		c.show(w, nil, p.GetStatus(), "sign-in", page)
	default:
		c.keep(w, r, s)
		c.cfg.Note(r, models.AuditSignedIn)
		http.Redirect(w, r, localPath(page.To), http.StatusSeeOther)
	}
}

// localPath is a path of the console, whatever was asked for.
func localPath(to string) string {
	if strings.HasPrefix(to, Path+"/") && !strings.Contains(to, "..") && !strings.ContainsAny(to, "\\\r\n") {
		return to
	}
	return Path
}

// postSignOut ends the session for every copy of its cookie.
func (c *Console) postSignOut(w http.ResponseWriter, r *http.Request, s *session) {
	if err := c.cfg.Ended.EndSession(r.Context(), s.ID, time.Until(s.Began.Add(sessionMax))); err != nil {
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
