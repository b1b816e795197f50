package auth_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"dibs/api/auth"
)

type recorded struct {
	*auth.Gate
	log      *bytes.Buffer
	refusals []auth.Refusal
	registry *prometheus.Registry
}

func recordingGate(t *testing.T, tokens auth.Tokens) *recorded {
	t.Helper()
	g := &recorded{log: &bytes.Buffer{}, registry: prometheus.NewRegistry()}
	var err error
	g.Gate, err = auth.New(auth.Config{
		Addr: "127.0.0.1:80", Tokens: tokens, Logger: slog.New(slog.NewTextHandler(g.log, nil)), Registerer: g.registry,
		Refused: func(_ context.Context, r auth.Refusal) { g.refusals = append(g.refusals, r) },
	})
	require.NoError(t, err)
	return g
}

func (g *recorded) ask(address, token string, need auth.Scope) string {
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
		g := recordingGate(t, auth.Tokens{Admin: "right", Viewer: "v1ewer"})
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
		require.InDelta(t, 54, g.value(t, refused, "unknown"), 0)
		for i := range 20_000 {
			g.ask(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256), "wr0ng", auth.Admin)
		}
		require.LessOrEqual(t, len(g.refusals), 10, "however many addresses there are")
	})
}

const refused = "dibs_http_tokens_refused_total"

// Behind a proxy all users may have one address. Some users' wrong tokens
// must not keep the others out.
func TestGoodJWTs_PassWhateverElseTheirAddressSends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		es, other := newES256(t, "es"), newES256(t, "es")
		file := t.TempDir() + "/jwks.json"
		write(t, file, keySetOf(t, es))
		g := recordingGate(t, auth.Tokens{JWT: auth.JWT{File: file, Issuer: issuer, Audience: audience}})
		unknownKey := other
		unknownKey.id = "other"
		good := 0
		for _, wrong := range []struct {
			what, token, answer, reason string
			count                       int
		}{
			{"expired", es.token(t, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}, nil), "unauthorized", "expired", 700},
			{"another issuer's", es.token(t, map[string]any{"iss": "https://other.example"}, nil), "unauthorized", "unknown", 700},
			{"unknown key", unknownKey.token(t, nil, nil), "unauthorized", "unknown", 700},
			{"not a token", "a.b.c", "unauthorized", "unknown", 700},
			{"forged", other.token(t, nil, nil), "unauthorized", "forged", 700},
			{"a guess", "guess", "rate_limited.", "unknown", 700},
		} {
			before := g.value(t, refused, wrong.reason)
			answer := ""
			for range wrong.count {
				answer = g.ask("192.0.2.1:1", wrong.token, auth.User)
			}
			require.Equal(t, wrong.answer, answer, wrong.what)
			require.InDelta(t, wrong.count, g.value(t, refused, wrong.reason)-before, 0, wrong.what)
			for range 60 { // enough to exceed an address' limit
				good++
				fresh := es.token(t, map[string]any{"jti": strconv.Itoa(good)}, nil)
				require.Equal(t, "may", g.ask("192.0.2.1:1", fresh, auth.User), "after %d tokens: %s", wrong.count, wrong.what)
			}
		}
	})
}

func (g *recorded) value(t *testing.T, metric, label string) float64 {
	t.Helper()
	families, err := g.registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == metric && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	require.Fail(t, "no such series", "%s of %s", metric, label)
	return 0
}
