package auth

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type site struct {
	asked  atomic.Int64
	status int
	body   string
}

func (s *site) RoundTrip(*http.Request) (*http.Response, error) {
	s.asked.Add(1)
	if s.status == 0 {
		return nil, errors.New("away")
	}
	return &http.Response{StatusCode: s.status, Status: http.StatusText(s.status), Body: io.NopCloser(strings.NewReader(s.body))}, nil
}

const (
	keyA = `{"kty":"EC","crv":"P-256","kid":"a","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`
	keyB = `{"kty":"EC","crv":"P-256","kid":"b","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`
)

// askingFrom is the source of keys behind a URL, which this transport answers.
func askingFrom(site http.RoundTripper, maxAge time.Duration) *keyURL {
	u := newKeyURL("https://id.example/keys", maxAge, slog.New(slog.DiscardHandler))
	u.client.Transport = site
	return u
}

func has(id string) func(*keySet) bool {
	return func(s *keySet) bool {
		for _, k := range s.all {
			if k.id == id {
				return true
			}
		}
		return false
	}
}

func TestKeyURL_AsksWhenItMustAndSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &site{}
		u := askingFrom(s, DefaultKeysMaxAge)
		ask := func(id string) *keySet {
			keys, err := u.keys(context.Background(), has(id))
			synctest.Wait()
			if keys == nil {
				require.ErrorIs(t, err, errKeys)
			}
			return keys
		}
		for range 5 {
			require.Nil(t, ask("a"), "away from the start")
		}
		require.EqualValues(t, 1, s.asked.Load())
		s.status, s.body = 200, `{"keys":[`+keyA+`]}`
		<-time.After(keysPause)
		first := ask("a")
		require.True(t, has("a")(first))
		for range 5 {
			require.Same(t, first, ask("a"))
			require.Same(t, first, ask("b"), "asked a moment ago")
		}
		require.EqualValues(t, 2, s.asked.Load())

		s.body = `{"keys":[` + keyA + `,` + keyB + `]}`
		<-time.After(keysPause)
		require.True(t, has("b")(ask("b")), "a key that is not known is asked for")
		require.EqualValues(t, 3, s.asked.Load())
		<-time.After(keysPause)
		ask("a")
		require.EqualValues(t, 3, s.asked.Load(), "the keys are fresh")

		s.body = `{"keys":[` + keyB + `]}`
		<-time.After(keysFor - keysAhead - keysPause)
		require.True(t, has("a")(ask("a")), "a request before they are too old does not wait")
		require.False(t, has("a")(ask("b")))
		for _, broken := range []*site{{}, {status: 500, body: `{"keys":[` + keyA + `]}`}, {status: 200, body: "<html>"}} {
			u.client.Transport = broken
			<-time.After(keysFor)
			for range 3 {
				require.True(t, has("b")(ask("b")), "what was read before stays")
				require.False(t, has("a")(ask("b")))
			}
			require.EqualValues(t, 1, broken.asked.Load())
		}
	})
}

// Without an answer it is not known whether the issuer has the key by now.
func TestKeyURL_AKeyThatMayBeNewIsNotUnknownWhileTheIssuerIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &site{status: 200, body: `{"keys":[` + keyA + `]}`}
		u := askingFrom(s, DefaultKeysMaxAge)
		_, err := u.keys(t.Context(), has("b"))
		require.NoError(t, err, "the issuer has no such key")
		s.status = 0
		<-time.After(keysPause)
		for range 3 {
			_, err = u.keys(t.Context(), has("b"))
			require.ErrorIs(t, err, errKeys)
			_, err = u.keys(t.Context(), has("a"))
			require.NoError(t, err)
			synctest.Wait()
		}
		require.EqualValues(t, 2, s.asked.Load(), "asked a moment ago")
		s.status, s.body = 200, `{"keys":[`+keyA+`,`+keyB+`]}`
		<-time.After(keysPause)
		keys, err := u.keys(t.Context(), has("b"))
		require.NoError(t, err)
		require.True(t, has("b")(keys))
	})
}

// A withdrawn key must not be accepted again just because no request came
// in between.
func TestKeyURL_WithdrawnKeysAreOutInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &site{status: 200, body: `{"keys":[` + keyA + `,` + keyB + `]}`}
		u := askingFrom(s, DefaultKeysMaxAge)
		ask := func(id string) *keySet {
			keys, err := u.keys(t.Context(), has(id))
			require.NoError(t, err)
			return keys
		}
		require.True(t, has("a")(ask("a")))
		s.body = `{"keys":[` + keyB + `]}`
		<-time.After(keysFor)
		require.False(t, has("a")(ask("a")), "the first request after that time waits for the answer")
		s.body = `{"keys":[]}`
		<-time.After(keysFor)
		require.Empty(t, ask("b").all, "no keys is an answer")
		entries, failing := u.state()
		require.Zero(t, entries)
		require.Zero(t, failing)
	})
}

func TestKeyURL_KeysThatCannotBeReadAgainEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const maxAge = time.Hour
		s := &site{status: 200, body: `{"keys":[` + keyA + `]}`}
		u := askingFrom(s, maxAge)
		ask := func() error {
			_, err := u.keys(t.Context(), has("a"))
			synctest.Wait()
			return err
		}
		require.NoError(t, ask())
		s.status = 0
		<-time.After(keysFor)
		for passed := keysFor; passed < maxAge; passed += time.Minute {
			require.NoError(t, ask(), "after %s", passed)
			entries, failing := u.state()
			require.Equal(t, 1, entries)
			require.Equal(t, passed-keysFor, failing)
			<-time.After(time.Minute)
		}
		require.ErrorIs(t, ask(), errKeys)
		require.ErrorIs(t, ask(), errKeys)
		s.status = 200
		<-time.After(keysPause)
		require.NoError(t, ask())
		_, failing := u.state()
		require.Zero(t, failing)
	})
}

// Redirects away from HTTPS, and long chains, must not be followed.
func TestKeyURL_StaysOnHTTPS(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hops []string
		read bool
	}{
		{nil, true}, {[]string{"https://cdn.example/keys"}, true}, {[]string{"https://a.example", "https://b.example", "https://c.example"}, true},
		{[]string{"http://id.example/keys"}, false}, {[]string{"http://127.0.0.1/keys"}, false},
		{[]string{"https://a.example", "http://b.example", "https://c.example"}, false},
		{[]string{"https://a.example", "https://b.example", "https://c.example", "https://d.example"}, false},
	} {
		u := askingFrom(&redirecting{hops: c.hops}, DefaultKeysMaxAge)
		keys, err := u.keys(t.Context(), has("a"))
		require.Equal(t, c.read, err == nil && has("a")(keys), c.hops)
	}
}

type redirecting struct {
	hops []string
	next int
}

func (r *redirecting) RoundTrip(*http.Request) (*http.Response, error) {
	if r.next == len(r.hops) {
		return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Body: io.NopCloser(strings.NewReader(`{"keys":[` + keyA + `]}`))}, nil
	}
	r.next++
	return &http.Response{StatusCode: http.StatusFound, Status: "302 Found", Header: http.Header{"Location": {r.hops[r.next-1]}}, Body: http.NoBody}, nil
}

func TestParseKeys_PassesOverWhatCannotVerify(t *testing.T) {
	t.Parallel()
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	encode := base64.RawURLEncoding.EncodeToString
	small := `{"kty":"RSA","kid":"small","n":"` + encode(weak.N.Bytes()) + `","e":"AQAB"}`
	for _, other := range []string{small, `{"kty":"oct","kid":"o","k":"c2VjcmV0"}`, `{"kty":"new"}`, `{"kty":"EC","crv":"secp256k1"}`} {
		keys, err := parseKeys([]byte(`{"keys":[` + other + `,` + keyA + `]}`))
		require.NoError(t, err, other)
		require.Len(t, keys.all, 1, other)
		require.Equal(t, []string{"ES256"}, keys.all[0].algs)
		keys, err = parseKeys([]byte(`{"keys":[` + other + `]}`))
		require.NoError(t, err, other)
		require.Empty(t, keys.all)
		require.Equal(t, 1, keys.others, other)
	}
	for _, none := range []string{"", "{}", `{"keys":null}`, `{"keys":{}}`, "<html>"} {
		_, err := parseKeys([]byte(none))
		require.Error(t, err, none)
	}
}

// Verified signatures a second must be limited, whoever sends them. A token
// must wait, but not for long.
func TestAdmit_BoundsTheSignaturesOfASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRefusals(&Config{Logger: slog.New(slog.DiscardHandler), Clock: time.Now})
		started := time.Now()
		for range r.checks.Burst() {
			require.Nil(t, r.admit(t.Context(), "192.0.2.1:1"))
		}
		require.Zero(t, time.Since(started), "side by side")
		require.Nil(t, r.admit(t.Context(), "192.0.2.2:1"))
		require.Positive(t, time.Since(started), "it waited for its turn")
		for range 3 {
			r.checks.ReserveN(time.Now(), r.checks.Burst())
		}
		p := r.admit(t.Context(), "192.0.2.1:1")
		require.NotNil(t, p)
		require.Equal(t, "rate_limited", string(p.Code))
	})
}
