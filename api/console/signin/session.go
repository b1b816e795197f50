package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"strings"
	"time"
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

// Session is a signed-in user. It is stored in a cookie that only API
// processes can read, so any of them can serve it. It ends with its token,
// after sessionFor without use, after sessionMax, or when its user signs
// out. Only the last needs Redis.
type Session struct {
	ID        string    `json:"id"`
	Token     string    `json:"token"` // checked on each request
	CSRF      string    `json:"csrf"`  // required in each form
	StartedAt time.Time `json:"began"`
	At        time.Time `json:"at"` // when the cookie was set

	Who Who `json:"-"`
}

func newSession(token string) *Session {
	return &Session{ID: rand.Text(), Token: token, CSRF: rand.Text(), StartedAt: time.Now().UTC()}
}

func (s *Session) over(now time.Time) bool {
	return now.Sub(s.At) > sessionFor && !s.At.IsZero() || now.Sub(s.StartedAt) > sessionMax
}

// ended reports whether a session was signed out. An error means unknown.
func (g *Gate) ended(ctx context.Context, s *Session) (bool, error) {
	if s.At.IsZero() { // service without tokens, so without a cookie
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, endedTimeout)
	defer cancel()
	return g.cfg.Ended.SessionEnded(ctx, s.ID)
}

func (g *Gate) session(r *http.Request) *Session {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	var s Session
	if !g.seal.Open(cookie.Value, &s) || s.ID == "" || s.At.IsZero() || s.over(time.Now()) {
		return nil
	}
	return &s
}

// keep sets the cookie of a session whose cookie is missing or old.
func (g *Gate) keep(w http.ResponseWriter, r *http.Request, s *Session) {
	if time.Since(s.At) < renewAfter {
		return
	}
	s.At = time.Now().UTC()
	sealed, err := g.seal.Seal(s)
	if err != nil { // strings and times always marshal
		return
	}
	g.setCookie(w, r, sealed, int(sessionFor.Seconds()))
}

func (g *Gate) setCookie(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // without TLS, on loopback, a browser would not send a secure one
		Name: cookieName, Value: value, Path: Path, MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: r.TLS != nil || strings.EqualFold(forwarded(r, "X-Forwarded-Proto"), "https"),
	})
}

func (s *Session) allows(r *http.Request) bool {
	r.Body = http.MaxBytesReader(nil, r.Body, formMax)
	return subtle.ConstantTimeCompare([]byte(r.PostFormValue("csrf")), []byte(s.CSRF)) == 1
}

func (s *Session) authorize(r *http.Request) *http.Request {
	r = r.WithContext(r.Context())
	r.Header = r.Header.Clone()
	r.Header.Del("Authorization")
	r.Header.Del("Cookie")
	if s.Token != "" {
		r.Header.Set("Authorization", "Bearer "+s.Token)
	}
	return r
}
