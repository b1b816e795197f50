package cmd_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testenv"
)

func TestATokenThatIsMadeIsTaken(t *testing.T) {
	t.Parallel()
	made := regexp.MustCompile(`^token: (dibs_[A-Za-z0-9_-]{43})\nline:  (ann admin sha256:[0-9a-f]{64} expires=\S+Z)\n$`)
	words := made.FindStringSubmatch(requireOK(t, run(t, nil, "token", "--actor", "ann", "--role", "admin", "--expires", "1h")))
	require.NotNil(t, words)
	token, line := words[1], words[2]
	require.Contains(t, line, fmt.Sprintf("%x", sha256.Sum256([]byte(token))))
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, []byte(line+"\n"), 0o600))
	serve := start(t, []string{"DIBS_TOKENS_FILE=" + file}, "serve")
	require.Equal(t, "unauthorized", call(t, http.MethodPost, serve.url+"/v1/campaigns", coupon).code())
	serve.post("/campaigns", coupon, "Authorization: Bearer "+token)
	require.NotContains(t, serve.stop().stderr, token)

	other := requireOK(t, run(t, nil, "token"))
	require.Regexp(t, `line:  viewer viewer sha256:[0-9a-f]{64}\n$`, other)
	require.NotContains(t, other, token)
	for _, bad := range [][]string{
		{"--actor="}, {"--actor", "a b"}, {"--role", "root"}, {"--expires", "1999-01-01T00:00:00Z"}, {"--expires", "-1h"}, {"--expires", "soon"}, {"ann"},
	} {
		require.Equal(t, cmd.ExitUsage, run(t, nil, append([]string{"token"}, bad...)...).code, bad)
	}
}

func TestHealthcheckSaysHowTheProcessOfItsSettingsIs(t *testing.T) {
	t.Parallel()
	serve := start(t, nil, "serve")
	addr := strings.TrimPrefix(serve.url, "http://")
	requireOK(t, run(t, []string{"DIBS_HTTP_ADDR=" + addr}, "healthcheck"))
	requireOK(t, run(t, []string{"DIBS_HTTP_ADDR=" + addr, "DIBS_METRICS_ADDR=127.0.0.1:1"}, "healthcheck", "--live"))
	serve.stop()
	requireRefusal(t, run(t, []string{"DIBS_HTTP_ADDR=" + addr}, "healthcheck"), cmd.ExitFailed, "start the process", "refused")
	requireRefusal(t, run(t, []string{"DIBS_HTTP_ADDR=" + addr, "DIBS_METRICS_ADDR=127.0.0.1:1"}, "healthcheck"), cmd.ExitFailed,
		"no one answers at 127.0.0.1:1 or "+addr)
}

// A consumer that waits for an unreachable Redis is healthy, and must
// say what it waits for.
func TestHealthcheckOfARoleThatWaits(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	consumer := start(t, s.environ, "consumer")
	environ := []string{"DIBS_METRICS_ADDR=" + strings.TrimPrefix(consumer.url, "http://")}
	require.Empty(t, requireOK(t, run(t, environ, "healthcheck")))
	s.redis.Kill()
	eventually(t, "the role does not say what is away", func() bool {
		return strings.HasSuffix(requireOK(t, run(t, environ, "healthcheck")), "away: redis\n")
	})
	requireOK(t, run(t, environ, "healthcheck", "--live"))
}

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
