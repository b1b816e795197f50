package auth_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dibs/api/auth"
)

type told struct {
	*auth.Gate
	log      *bytes.Buffer
	refusals []auth.Refusal
	registry *prometheus.Registry
}

func tellingGate(t *testing.T, tokens auth.Tokens) *told {
	t.Helper()
	g := &told{log: &bytes.Buffer{}, registry: prometheus.NewRegistry()}
	var err error
	g.Gate, err = auth.New(auth.Config{
		Addr: "127.0.0.1:80", Tokens: tokens, Logger: slog.New(slog.NewTextHandler(g.log, nil)), Registerer: g.registry,
		Refused: func(_ context.Context, r auth.Refusal) { g.refusals = append(g.refusals, r) },
	})
	require.NoError(t, err)
	return g
}

func (g *told) ask(address, token string, need auth.Scope) string {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = address
	r.Header.Set("Authorization", "Bearer "+token)
	if p := g.Check(r, need); p != nil {
		return string(p.Code) + strings.Repeat(".", p.RetrySeconds())
	}
	return "may"
}

func TestWrongTokens_AreThrottledByAddressAndToldWithoutTheToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := tellingGate(t, auth.Tokens{Admin: "right", Viewer: "v1ewer"})
		for range 50 {
			require.Equal(t, "unauthorized", g.ask("192.0.2.1:1000", "wr0ng", auth.Admin))
		}
		require.Equal(t, "rate_limited.", g.ask("192.0.2.1:2000", "wr0ng", auth.Admin))
		require.Equal(t, "may", g.ask("192.0.2.1:2000", "right", auth.Admin), "the right one passes")
		require.Equal(t, "unauthorized", g.ask("192.0.2.2:1000", "wr0ng", auth.Admin), "others are others")
		require.Equal(t, "unauthorized", g.ask("[2001:db8::1]:1000", "wr0ng", auth.Admin))
		<-time.After(time.Minute)
		require.Equal(t, "unauthorized", g.ask("192.0.2.1:1000", "wr0ng", auth.Admin), "it passes")
		require.Equal(t, "forbidden", g.ask("192.0.2.3:1000", "v1ewer", auth.Admin))
		require.Equal(t, "unauthorized", g.ask("192.0.2.4:1000", "", auth.Admin), "no token is no wrong one")

		require.Equal(t, []auth.Refusal{
			{Address: "192.0.2.1", Reason: "unknown", Count: 1}, {Address: "192.0.2.2", Reason: "unknown", Count: 1},
			{Address: "2001:db8::/64", Reason: "unknown", Count: 1}, {Address: "192.0.2.1", Reason: "unknown", Count: 51},
			{Actor: "viewer", Address: "192.0.2.3", Reason: "forbidden", Count: 1},
		}, g.refusals)
		require.Equal(t, len(g.refusals), strings.Count(g.log.String(), "tokens were refused"))
		require.Contains(t, g.log.String(), "address=192.0.2.1 ")
		require.NotContains(t, g.log.String(), "wr0ng")
		require.NotContains(t, g.log.String(), "v1ewer")
		require.NoError(t, testutil.GatherAndCompare(g.registry, strings.NewReader(`# HELP dibs_http_tokens_refused_total Requests whose token was refused, by reason.
# TYPE dibs_http_tokens_refused_total counter
dibs_http_tokens_refused_total{reason="forbidden"} 1
dibs_http_tokens_refused_total{reason="unknown"} 54
`)))
	})
}

// An address that guesses JWTs has no more of them verified; one that was verified before passes.
func TestWrongJWTs_AreNotLookedAtForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		es, other := newES256(t, "es"), newES256(t, "es")
		file := t.TempDir() + "/jwks.json"
		write(t, file, keySetOf(t, es))
		g := tellingGate(t, auth.Tokens{JWT: auth.JWT{File: file, Issuer: issuer, Audience: audience}})
		good, later := es.token(t, nil, nil), es.token(t, map[string]any{"jti": "2"}, nil)
		require.Equal(t, "may", g.ask("192.0.2.1:1", good, auth.User))
		wrong := other.token(t, nil, nil)
		for range 50 {
			require.Equal(t, "unauthorized", g.ask("192.0.2.1:1", wrong, auth.User))
		}
		for range 3 {
			require.Equal(t, "rate_limited.", g.ask("192.0.2.1:1", wrong, auth.User))
		}
		require.Equal(t, "may", g.ask("192.0.2.1:1", good, auth.User))
		require.Equal(t, "rate_limited.", g.ask("192.0.2.1:1", later, auth.User), "it would have to be verified")
		<-time.After(time.Second)
		require.Equal(t, "may", g.ask("192.0.2.1:1", later, auth.User))
		expired := es.token(t, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}, nil)
		require.Equal(t, "unauthorized", g.ask("192.0.2.9:1", expired, auth.User))
		require.Equal(t, "expired", g.refusals[len(g.refusals)-1].Reason)
	})
}

// However many addresses there are, few lines are told of them.
func TestWrongTokens_OfManyAddressesAreToldWithinBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := tellingGate(t, auth.Tokens{Admin: "right"})
		for i := range 20_000 {
			g.ask(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256), "wrong", auth.Admin)
		}
		require.Len(t, g.refusals, 5)
	})
}
