package cmd_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

// Probes' own listener must need no token and show nothing else.
func TestProbesHaveAListenerOfTheirOwn(t *testing.T) {
	t.Parallel()
	addr := testenv.Addr(t)
	environ := []string{"DIBS_PROBE_ADDR=" + addr, "DIBS_VIEWER_TOKEN=viewer-0123456789abcdef"}
	serve := start(t, environ, "serve")
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 404, "/v1/campaigns": 404, "/console": 404} {
		require.Equal(t, want, call(t, http.MethodGet, "http://"+addr+path, "").status, path)
	}
	require.Equal(t, 405, call(t, http.MethodPost, "http://"+addr+"/healthz", "").status)
	requireOK(t, run(t, append(environ, "DIBS_HTTP_ADDR=127.0.0.1:1"), "healthcheck"))
	serve.stop()
	require.Equal(t, 1, run(t, append(environ, "DIBS_HTTP_ADDR=127.0.0.1:1"), "healthcheck").code)
}
