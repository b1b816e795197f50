package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"dibs/api/wire"
	"dibs/models"
)

const (
	cookieName = "dibs_console"
	// sessionFor is how long a session lasts after it was last used. A page that is open uses it every few seconds.
	sessionFor = 12 * time.Hour
	// sessionMax is how long a session lasts at most.
	sessionMax = 24 * time.Hour
	// endedTimeout bounds the question whether a session was ended, which comes before each page.
	endedTimeout = time.Second
	// renewAfter is how old a session's cookie may be before it is set anew.
	renewAfter = 10 * time.Minute
	// tokenMax bounds a token that a cookie has to hold.
	tokenMax = 2500
	formMax  = 16 << 10
)

// session is who is signed in. It is kept in a cookie that only API processes can read: any of them knows it. It ends with its token, when
// it was not used for sessionFor, after sessionMax, and when its owner signs out; the last is remembered in Redis.
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

// ended reports whether somebody signed out of a session. Errors: it is not known.
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
		Name: cookieName, Value: value, Path: Path, MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https"),
	})
}

// allows tells whether a form is of this session.
func (s *session) allows(r *http.Request) bool {
	r.Body = http.MaxBytesReader(nil, r.Body, formMax)
	return subtle.ConstantTimeCompare([]byte(r.PostFormValue("csrf")), []byte(s.CSRF)) == 1
}

// authorize returns the request with the session's token.
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

// signInPage is what the page of signing in shows.
type signInPage struct {
	To      string
	Refused string
}

func (c *Console) getSignIn(w http.ResponseWriter, r *http.Request) {
	if c.cfg.Open {
		http.Redirect(w, r, Path, http.StatusSeeOther)
		return
	}
	c.show(w, nil, http.StatusOK, "sign-in", signInPage{To: r.URL.Query().Get("to")})
}

func (c *Console) postSignIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, formMax)
	token := strings.TrimSpace(r.PostFormValue("token"))
	page := signInPage{To: r.PostFormValue("to")}
	s := newSession(token)
	p := c.cfg.MayRead(s.authorize(r)) // it bounds the wrong tokens of an address, and lets a right one pass whatever came before
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
