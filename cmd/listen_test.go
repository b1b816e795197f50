package cmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// runRefused runs a command that must refuse, and returns its exit
// code and its only line.
func runRefused(t *testing.T, environ []string, args ...string) (code int, line string) {
	t.Helper()
	var out, problems bytes.Buffer
	code = Run(t.Context(), Env{Args: args, Environ: environ, Stdout: &out, Stderr: &problems})
	require.Empty(t, out.String())
	require.Equal(t, 1, strings.Count(problems.String(), "\n"), problems.String())
	return code, problems.String()
}

func TestWhatCannotWorkIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	t.Parallel()
	noOne := []string{"DIBS_REDIS_URL=redis://127.0.0.1:1", "DIBS_MYSQL_DSN=root@tcp(127.0.0.1:1)/dibs", "DIBS_ADMIN_TOKEN=secret"}
	for _, bad := range []struct{ args, setting string }{
		{"serve --http-addr :99999", "DIBS_HTTP_ADDR"},
		{"serve --http-addr 127.0.0.1:-1", "DIBS_HTTP_ADDR"},
		{"api --http-addr 127.0.0.1:no-such", "DIBS_HTTP_ADDR"},
		{"api --http-addr 8080", "DIBS_HTTP_ADDR"},
		{"demo --http-addr 127.0.0.1:65536", "DIBS_HTTP_ADDR"},
		{"consumer --metrics-addr :99999", "DIBS_METRICS_ADDR"},
		{"syncer --metrics-addr 9091", "DIBS_METRICS_ADDR"},
		{"finance --metrics-addr :99999", "DIBS_METRICS_ADDR"},
		{"consumer --name=", "DIBS_NAME"},
		{"serve --storefront-token=secret", "DIBS_STOREFRONT_TOKEN"},
		{"api --http-addr 0.0.0.0:0 --admin-token=a-long-secret-of-many", "DIBS_INSECURE"},
		{"consumer --metrics-addr :0 --admin-token=a-long-secret-of-many", "DIBS_INSECURE"},
		{"api --http-addr 0.0.0.0:0 --insecure=1", "DIBS_ADMIN_TOKEN"}, // 6 characters
		{"serve --admin-token= --viewer-token-file=/no/such", "DIBS_VIEWER_TOKEN_FILE"},
		{"serve --admin-token-file=/dev/null", "DIBS_ADMIN_TOKEN_FILE"},
		{"syncer --tokens-file=/no/such --metrics-addr 127.0.0.1:0", "DIBS_TOKENS_FILE"},
		{"serve --jwks-file=/no/such --jwt-issuer=i --jwt-audience=a", "DIBS_JWKS_FILE"},
		{"serve --jwks-url=http://id.example --jwt-issuer=i --jwt-audience=a", "DIBS_JWKS_URL"},
		{"api --jwks-url=https://id.example --jwt-issuer=i", "DIBS_JWT_AUDIENCE"},
		{"serve --tls-cert=/no/such", "DIBS_TLS_KEY"},
		{"serve --tls-cert=/no/such --tls-key=/no/such", "DIBS_TLS_CERT"},
		{"reconcile --campaign=", "--campaign"},
		{"reconcile --campaign=a/b", "--campaign"},
	} {
		t.Run(bad.args, func(t *testing.T) {
			t.Parallel()
			code, line := runRefused(t, noOne, strings.Fields(bad.args)...)
			require.Equal(t, ExitUsage, code, line)
			require.Contains(t, line, bad.setting)
		})
	}
	code, line := runRefused(t, noOne, "reconcile", "--campaign", "a b")
	require.Equal(t, ExitUsage, code, line)
	require.Contains(t, line, "bad id")
}
