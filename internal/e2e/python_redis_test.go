package e2e

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/testenv"
)

// By TLS, with a percent-encoded password, or not at all.
func TestPythonExampleConnectsAsTheURLSays(t *testing.T) {
	t.Parallel()
	cert, key := testenv.Certificate(t)
	port := strconv.Itoa(machine.Port(t))
	redis := testenv.Redis(t, "tls-port "+port, "tls-cert-file "+cert, "tls-key-file "+key, "tls-auth-clients no")
	for _, user := range []string{"a:b", "default"} {
		require.NoError(t, redis.Client().Do(t.Context(), "acl", "setuser", user, "on", "resetpass", ">p@s%s/1", "~*", "&*", "+@all").Err())
	}
	call := func(url string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "python3", "-c", "import finance, sys; print(finance.Redis(sys.argv[1]).call('ACL', 'WHOAMI'))", url)
		cmd.Dir = "../../docs/examples"
		cmd.Env = append(cmd.Environ(), "SSL_CERT_FILE="+cert)
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	const password = "p%40s%25s%2F1"
	for url, want := range map[string]string{
		"redis://:" + password + "@" + redis.Addr() + "/0": "b'default'", "redis://a%3Ab:" + password + "@" + redis.Addr(): "b'a:b'",
		"rediss://:" + password + "@127.0.0.1:" + port: "b'default'",
	} {
		got, err := call(url)
		require.NoError(t, err, got)
		require.Equal(t, want, got)
	}
	for _, url := range []string{"redis+sentinel://" + redis.Addr() + "/m", "http://" + redis.Addr(), redis.Addr(), "rediss://127.0.0.1:" + port + "?tls_ca=x"} {
		got, err := call(url)
		require.Error(t, err)
		require.Contains(t, got, "must be redis://", "nothing was sent")
	}
	got, err := call("rediss://localhost:" + port)
	require.Error(t, err)
	require.Contains(t, got, "certificate verify failed", "of another name")
}
