package api_test

import (
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
	handler := func(tokens api.Tokens) http.Handler {
		h, err := api.MetricsHandler("127.0.0.1:80", tokens, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
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
	require.Equal(t, 200, apitest.Ask(locked, "GET", "/healthz", "").Code)
	require.Equal(t, 200, apitest.Ask(handler(api.Tokens{}), "GET", "/metrics", "").Code)
}
