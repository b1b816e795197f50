package bench_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/auth"
)

const (
	tokenConnections = 50
	tokenUsers       = 2_000  // who claim by turns, each with a token of its own
	tokensOnce       = 20_000 // more than there are claims of a second: each is verified, mostly
	benchToken       = "a-storefronts-token"
)

// owners writes a file of users for wrk, each with what token gives it.
func owners(b *testing.B, n int, token func(user string) string) string {
	b.Helper()
	var text strings.Builder
	for i := range n {
		user := fmt.Sprintf("user-%d", i)
		fmt.Fprintf(&text, "%s %s\n", user, token(user))
	}
	path := filepath.Join(b.TempDir(), "owners")
	require.NoError(b, os.WriteFile(path, []byte(text.String()), 0o600))
	return path
}

// issuer returns a signer of users' ES256 tokens, and the settings that take them.
func issuer(b *testing.B) (func(user string) string, auth.JWT) {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(b, err)
	public, err := jwk.Import(key.Public())
	require.NoError(b, err)
	set := jwk.NewSet()
	require.NoError(b, set.AddKey(public))
	text, err := json.Marshal(set)
	require.NoError(b, err)
	file := filepath.Join(b.TempDir(), "jwks.json")
	require.NoError(b, os.WriteFile(file, text, 0o600))
	takes := auth.JWT{File: file, Issuer: "https://id.example", Audience: "dibs"}
	return func(user string) string {
		made, err := jwt.NewBuilder().Issuer(takes.Issuer).Audience([]string{takes.Audience}).Subject(user).Claim("scope", "dibs:user").
			Expiration(time.Now().Add(time.Hour)).Build()
		require.NoError(b, err)
		signed, err := jwt.Sign(made, jwt.WithKey(jwa.ES256(), key))
		require.NoError(b, err)
		return string(signed)
	}, takes
}

// benchTokens puts the same load on an API that asks for no token, for a storefront's, and for those of users.
func benchTokens(b *testing.B, s *sheet) {
	r := newBroker(b)
	s.Facts = []string{r.version(b), wrkVersion(b)}
	sign, takes := issuer(b)
	open := startChild(b, childAPI, childSettings{RedisURL: r.server.URL()})
	asks := startChild(b, childAPI, childSettings{RedisURL: r.server.URL(), Tokens: api.Tokens{Storefront: benchToken, JWT: takes}})
	shop := owners(b, tokenUsers, func(string) string { return benchToken })
	users := owners(b, tokenUsers, sign)
	side := func(name string, server *child, span string, file func() string) func() {
		return func() {
			m, path := r.limited(b, plenty, 1e6, 1e6), file()
			got := s.load(b, name, server, func() wrkResult { return wrkFor(b, span, server.addr, m.ID, tokenConnections, false, path) })
			require.Zero(b, got.Refused, name)
			r.forget(b, m)
		}
	}
	same := func(path string) func() string { return func() string { return path } }
	s.takeTurns([]func(){
		side("no token asked for", open, wrkSpan(), same(shop)),
		side("a storefront's token", asks, wrkSpan(), same(shop)),
		side("users' JWTs", asks, wrkSpan(), same(users)),
		side("users' JWTs, each new", asks, "1s", func() string { return owners(b, tokensOnce, sign) }),
	})
	s.ratio(b, "a storefront's token / none", "a storefront's token", "no token asked for", 0)
	s.ratio(b, "users' JWTs / none", "users' JWTs", "no token asked for", 0.85)
	s.ratio(b, "users' JWTs / none: CPU of the server", "users' JWTs: CPU of the server", "no token asked for: CPU of the server", 0)
	s.ratio(b, "users' JWTs, each new / none", "users' JWTs, each new", "no token asked for", 0)
	s.note(fmt.Sprintf("wrk with one thread, %d connections, %s at a time. %d users claim by turns, each with an ES256 token of its own that the API has seen before;",
		tokenConnections, wrkSpan(), tokenUsers))
	s.note("the last side has a token that was never seen with each claim, for a second.")
}
