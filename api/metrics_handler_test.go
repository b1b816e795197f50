package api_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
)

func TestMetricsHandler_MetricsAskForTheViewersToken(t *testing.T) {
	t.Parallel()
	var stuck error
	handler := func(tokens api.Tokens) http.Handler {
		h, err := api.Side{
			Addr: "127.0.0.1:80", Tokens: tokens, Logger: slog.New(slog.DiscardHandler), Gatherer: prometheus.NewRegistry(),
			Live: func() error { return stuck }, Ready: func(context.Context) error { return errors.New("the reader is stuck") },
			Info: api.Info{Version: "v1.2.3", Partitions: 4, Durability: "fast", Groups: []string{"syncer"}},
		}.Handler()
		require.NoError(t, err)
		return h
	}
	locked := handler(api.Tokens{Viewer: "v1ewer", Storefront: "st0re"})
	for token, want := range map[string]int{"": 401, "wrong": 401, "st0re": 403, "v1ewer": 200} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		locked.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, token)
	}
	const info = `{"version":"v1.2.3","partitions":4,"durability":"fast","groups":["syncer"]}`
	require.Equal(t, 401, apitest.Ask(locked, "GET", "/v1/info", "").Code)
	require.JSONEq(t, info, apitest.Ask(handler(api.Tokens{}), "GET", "/v1/info", "").Body.String())
	require.JSONEq(t, `{"status":"ok"}`, apitest.Ask(locked, "GET", "/healthz", "").Body.String())
	stuck = errors.New("a loop is stuck")
	require.Equal(t, 503, apitest.Ask(locked, "GET", "/healthz", "").Code)
	w := apitest.Ask(locked, "GET", "/readyz", "")
	require.Equal(t, "the reader is stuck", apitest.RequireProblem(t, 503, w.Header(), w.Body.Bytes(), "unavailable").Detail)
	require.Equal(t, 200, apitest.Ask(handler(api.Tokens{}), "GET", "/metrics", "").Code)
	waits, err := api.Side{
		Addr: "127.0.0.1:80", Logger: slog.New(slog.DiscardHandler), Gatherer: prometheus.NewRegistry(), Live: func() error { return nil },
		Ready: func(context.Context) error { return nil }, Away: func(context.Context) []string { return []string{"mysql"} },
	}.Handler()
	require.NoError(t, err)
	require.JSONEq(t, `{"status":"ready","away":["mysql"]}`, apitest.Ask(waits, "GET", "/readyz", "").Body.String())
}
