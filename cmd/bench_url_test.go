package cmd_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
)

// liar is a Dibs with just the routes that a bench needs. Tests choose
// its stock figures.
type liar struct {
	*httptest.Server

	token   string // required token
	lost    int64  // units missing in its stock
	claimed atomic.Int64
	closed  atomic.Bool
	bearers atomic.Int64 // requests without the token
	keys    atomic.Int64 // claims with an idempotency key
}

func newLiar(t *testing.T, l *liar) *liar {
	t.Helper()
	routes := http.NewServeMux()
	routes.HandleFunc("POST /v1/campaigns", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `{}`) })
	routes.HandleFunc("POST /v1/campaigns/{id}/close", func(w http.ResponseWriter, _ *http.Request) {
		l.closed.Store(true)
		_, _ = fmt.Fprint(w, `{}`)
	})
	routes.HandleFunc("GET /v1/campaigns/{id}/stock", func(w http.ResponseWriter, r *http.Request) {
		n := l.claimed.Load() - l.lost
		_, _ = fmt.Fprintf(w, `{"campaign_id":%q,"total":1000000000,"remaining":%d,"claimed":%d,"synced":%d}`, r.PathValue("id"), 1_000_000_000-n, n, n)
	})
	routes.HandleFunc("POST /v1/campaigns/{id}/claims", func(w http.ResponseWriter, r *http.Request) {
		l.claimed.Add(1)
		if r.Header.Get("Idempotency-Key") != "" {
			l.keys.Add(1)
		}
		w.WriteHeader(http.StatusCreated)
	})
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.token != "" && r.Header.Get("Authorization") != "Bearer "+l.token {
			l.bearers.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		routes.ServeHTTP(w, r)
	}))
	t.Cleanup(l.Close)
	return l
}

var quick = []string{"bench", "--rate", "100", "--duration", "300ms", "--warm-up", "100ms", "--connections", "10"}

func bench(t *testing.T, l *liar, environ []string, args ...string) ended {
	t.Helper()
	return run(t, environ, append(append([]string{}, quick...), append([]string{"--url", l.URL}, args...)...)...)
}

func TestBenchOfARunningServiceClosesItsCampaign(t *testing.T) {
	t.Parallel()
	l := newLiar(t, &liar{token: secret})
	out := requireOK(t, bench(t, l, []string{"DIBS_ADMIN_TOKEN=" + secret}))
	require.Regexp(t, `^campaign bench-\w{8} at `+regexp.QuoteMeta(l.URL)+`, servers \S`, out)
	require.Regexp(t, `(?m)^accepted +30`, out)
	require.Contains(t, out, "the books agree: 40 claims", "warm-up and all")
	require.True(t, l.closed.Load())
	require.EqualValues(t, 40, l.keys.Load())
	require.Zero(t, l.bearers.Load())
	require.NotContains(t, out, secret)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	requireOK(t, bench(t, newLiar(t, &liar{token: secret}), []string{"DIBS_ADMIN_TOKEN_FILE=" + file}))
	requireRefusal(t, bench(t, l, []string{"DIBS_ADMIN_TOKEN=wrong-" + secret}), cmd.ExitFailed, "401")
}

func TestBenchFailsOfBooksThatLack(t *testing.T) {
	t.Parallel()
	l := newLiar(t, &liar{lost: 3})
	got := bench(t, l, nil)
	require.Equal(t, cmd.ExitFailed, got.code, got.stdout+got.stderr)
	require.Contains(t, got.stdout, "DO NOT AGREE")
	require.Regexp(t, `(?m)^dibs: .*\b37\b.*`, got.stderr, "in figures")
	got = bench(t, newLiar(t, &liar{lost: -1}), nil, "-o", "json")
	require.Equal(t, cmd.ExitFailed, got.code, "a claim that no one was given is no better")
	var report struct {
		Books struct {
			Agree bool
			Wrong []string
		}
	}
	decode(t, got.stdout, &report)
	require.False(t, report.Books.Agree)
	require.NotEmpty(t, report.Books.Wrong)
}

func TestBenchRampsUpAndHoldsAShareOfTheTop(t *testing.T) {
	t.Parallel()
	out := requireOK(t, bench(t, newLiar(t, &liar{}), nil,
		"--ramp", "--rate", "200", "--ramp-max", "200", "--ramp-step", "320ms", "--hold", "0.5", "--p99", "10s"))
	require.Regexp(t, `(?m)^tried/s +answered/s +p99 ms +p99 < 10000ms\n +200 `, out)
	// 200 on an idle machine
	require.Regexp(t, `(?m)^the highest rate that held: [1-9]\d*/s$`, out)
	require.Regexp(t, `(?m)^ +\d+ .* held$`, out)
	require.Regexp(t, `(?m)^rate asked for /s +[1-9]\d*$`, out)
}
