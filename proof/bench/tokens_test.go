package bench_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/testkit/apitest"
)

const (
	tokenConnections = 50
	tokenUsers       = 2_000  // claim in rotation, each with its own token
	tokensOnce       = 20_000 // more than a second's claims: mostly each is verified
	benchToken       = "a-storefronts-token"
)

// owners writes a file of users with their tokens, for wrk.
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

// benchTokens runs the same load on an API without tokens, with
// a storefront's, and with users' tokens.
func benchTokens(b *testing.B, s *sheet) {
	r := newBroker(b)
	s.Facts = []string{r.version(b), wrkVersion(b)}
	takes, token := apitest.Issuer(b)
	sign := func(user string) string { return token(user, "dibs:user") }
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
	s.note(fmt.Sprintf("wrk with one thread, %d connections, %s at a time. %d users claim in rotation, each with an ES256 token of its own that the API has seen before;",
		tokenConnections, wrkSpan(), tokenUsers))
	s.note("the last side has a token that was never seen with each claim, for a second.")
}
