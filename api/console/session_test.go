package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api/console/signin"
	"dibs/api/wire"
)

type ended struct {
	ids  map[string]time.Duration
	away error
}

func (e *ended) EndSession(_ context.Context, id string, keep time.Duration) error {
	if e.away == nil {
		e.ids[id] = keep
	}
	return e.away
}

func (e *ended) UseOnce(_ context.Context, id string, keep time.Duration) (bool, error) {
	_, was := e.ids[id]
	return !was && e.away == nil, e.EndSession(context.Background(), id, keep)
}

func (e *ended) SessionEnded(_ context.Context, id string) (bool, error) {
	_, is := e.ids[id]
	return is && e.away == nil, e.away
}

type browser struct {
	*Console

	mayRead func(*http.Request) *wire.Problem
	cookie  *http.Cookie
	noted   []string // actions
}

func newBrowser(t *testing.T, e *ended) *browser {
	t.Helper()
	b := &browser{mayRead: func(*http.Request) *wire.Problem { return nil }}
	c, err := New(Config{SignIn: signin.Config{
		MayRead: func(r *http.Request) *wire.Problem { return b.mayRead(r) },
		Who:     func(*http.Request) signin.Who { return signin.Who{} }, Ended: e, Secret: "s",
		Note:   func(_ *http.Request, action string) { b.noted = append(b.noted, action) },
		Logger: slog.New(slog.DiscardHandler),
	}})
	require.NoError(t, err)
	b.Console = c
	return b
}

func (b *browser) ask(method, path string, form url.Values) int {
	r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if b.cookie != nil {
		r.AddCookie(b.cookie)
	}
	w := httptest.NewRecorder()
	status := b.Serve(w, r)
	for _, cookie := range w.Result().Cookies() {
		b.cookie = cookie
	}
	return status
}

func (b *browser) csrf() url.Values {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(b.cookie)
	var csrf string
	b.gate.SignedIn(func(_ http.ResponseWriter, _ *http.Request, s *signin.Session) { csrf = s.CSRF })(httptest.NewRecorder(), r)
	return url.Values{"csrf": {csrf}}
}

func TestASession_EndsHoweverOftenItIsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		used, idle := newBrowser(t, &ended{}), newBrowser(t, &ended{})
		require.Equal(t, http.StatusSeeOther, used.ask(http.MethodPost, "/console/sign-in", url.Values{"token": {"t"}}))
		require.Equal(t, http.StatusSeeOther, idle.ask(http.MethodPost, "/console/sign-in", url.Values{"token": {"t"}}))
		for range 24 {
			<-time.After(time.Hour)
			require.Equal(t, http.StatusNoContent, used.ask(http.MethodGet, "/console/session", nil))
		}
		require.Equal(t, http.StatusUnauthorized, idle.ask(http.MethodGet, "/console/session", nil), "not used for twelve hours")
		<-time.After(time.Second)
		require.Equal(t, http.StatusUnauthorized, used.ask(http.MethodGet, "/console/session", nil))
	})
}

// A token that can't be judged now is neither unknown nor short of rights.
func TestSigningIn_SaysWhenItIsNotKnownWhoOneIs(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, &ended{ids: map[string]time.Duration{}})
	b.mayRead = func(*http.Request) *wire.Problem {
		return &wire.Problem{Code: wire.CodeUnavailable, Detail: "The issuer's keys can't be read."}
	}
	path, err := signin.Link("s", "t", "/console")
	require.NoError(t, err)
	link := httptest.NewRecorder()
	b.Serve(link, httptest.NewRequest(http.MethodGet, path, nil))
	require.Contains(t, link.Body.String(), "The issuer&#39;s keys can&#39;t be read.")
	form := httptest.NewRequest(http.MethodPost, "/console/sign-in", strings.NewReader("token=t"))
	form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	typed := httptest.NewRecorder()
	require.Equal(t, http.StatusServiceUnavailable, b.Serve(typed, form))
	require.Contains(t, typed.Body.String(), "The issuer&#39;s keys can&#39;t be read.")
	b.mayRead = func(*http.Request) *wire.Problem { return nil }
	require.Equal(t, http.StatusOK, b.ask(http.MethodGet, path, nil))
	require.NotNil(t, b.cookie, "the link was not used up")
}

// A link must sign in only once, within five minutes.
func TestALinkSignsInOnceAndForAShortTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &ended{ids: map[string]time.Duration{}}
		open := func(secret string) (signedIn bool) {
			path, err := signin.Link(secret, "t", "/console/campaigns/spring")
			require.NoError(t, err)
			b := newBrowser(t, e)
			for range 2 { // the second time it is used
				require.Equal(t, http.StatusOK, b.ask(http.MethodGet, path, nil))
				if b.cookie == nil {
					return signedIn
				}
				require.False(t, signedIn, "a link was used twice")
				require.Equal(t, http.StatusNoContent, b.ask(http.MethodGet, "/console/session", nil))
				require.Equal(t, []string{"console.signed_in"}, b.noted)
				signedIn, b.cookie = true, nil
			}
			return signedIn
		}
		require.True(t, open("s"))
		require.False(t, open("another secret"))
		e.away = errors.New("away")
		require.False(t, open("s"), "it is not known whether it was used")
		e.away = nil
		late, err := signin.Link("s", "t", "/console")
		require.NoError(t, err)
		<-time.After(signin.LinkFor + time.Second)
		b := newBrowser(t, e)
		b.ask(http.MethodGet, late, nil)
		require.Nil(t, b.cookie)
	})
}

// While Redis is unreachable, a session may have ended unnoticed: pages are
// shown, but nothing may be changed.
func TestASession_WhileRedisIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &ended{ids: map[string]time.Duration{}}
		b := newBrowser(t, e)
		b.ask(http.MethodPost, "/console/sign-in", url.Values{"token": {"t"}})
		<-time.After(time.Hour)
		e.away = errors.New("away")
		require.Equal(t, http.StatusNoContent, b.ask(http.MethodGet, "/console/session", nil))
		require.Equal(t, http.StatusServiceUnavailable, b.ask(http.MethodPost, "/console/campaigns/c/pause", b.csrf()))
		require.Equal(t, http.StatusServiceUnavailable, b.ask(http.MethodPost, "/console/sign-out", b.csrf()), "not signed out in name alone")
		e.away = nil
		require.Equal(t, http.StatusNoContent, b.ask(http.MethodGet, "/console/session", nil))
		kept := *b.cookie
		require.Equal(t, http.StatusSeeOther, b.ask(http.MethodPost, "/console/sign-out", b.csrf()))
		require.Empty(t, b.cookie.Value)
		b.cookie = &kept
		require.Equal(t, http.StatusUnauthorized, b.ask(http.MethodGet, "/console/session", nil))
		require.Len(t, e.ids, 1)
		require.Equal(t, []string{"console.signed_in", "console.signed_out"}, b.noted, "a sign-out that failed is none")
		for _, keep := range e.ids {
			require.Equal(t, 23*time.Hour, keep, "for as long as the cookie could be used")
		}
	})
}
