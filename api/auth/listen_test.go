package auth_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api/auth"
)

var away = []string{
	":8080", "0.0.0.0:8080", "[::]:8080", "192.168.1.7:80", "[fe80::1]:80", "example.org:80", "localhost.evil.org:80",
	"127.0.0.1.evil.org:80", "[::ffff:10.0.0.1]:80",
}

const long = "sixteen-letters!"

func TestDoor_WithoutTokensOnlyAtHome(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1:8080", "127.8.9.1:0", "[::1]:8080", "localhost:8080", "LOCALHOST:80", "[::ffff:127.0.0.1]:80"} {
		for _, tokens := range []auth.Tokens{{}, {Admin: "a"}} {
			require.NoError(t, auth.Door{Addr: addr}.Check(tokens), addr)
		}
	}
	for _, addr := range away {
		require.ErrorIs(t, auth.Door{Addr: addr, Insecure: true}.Check(auth.Tokens{}), auth.ErrListen, addr)
		for _, tokens := range []auth.Tokens{{Admin: long}, {Storefront: long}, {Viewer: long}} {
			require.NoError(t, auth.Door{Addr: addr, TLS: true}.Check(tokens), addr)
			require.NoError(t, auth.Door{Addr: addr, Insecure: true}.Check(tokens), addr)
			err := auth.Door{Addr: addr}.Check(tokens)
			require.ErrorIs(t, err, auth.ErrPlain, addr)
			require.ErrorContains(t, err, "DIBS_INSECURE")
		}
	}
	for _, addr := range []string{"", "8080", "127.0.0.1", "::1:80", ":99999", "127.0.0.1:-1", "127.0.0.1:no-such"} {
		require.ErrorIs(t, auth.Door{Addr: addr}.Check(auth.Tokens{Admin: "a"}), auth.ErrAddr, addr)
	}
}

func TestDoor_ShortTokensStayAtHome(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(long[1:]+"\n"), 0o600))
	for setting, tokens := range map[string]auth.Tokens{
		"ADMIN_TOKEN": {Admin: long[1:], Viewer: long}, "STOREFRONT_TOKEN": {Storefront: "s"}, "VIEWER_TOKEN": {Admin: long, Viewer: "v"},
		"VIEWER_TOKEN_FILE": {ViewerFile: file},
	} {
		require.NoError(t, auth.Door{Addr: "127.0.0.1:80"}.Check(tokens))
		err := auth.Door{Addr: "0.0.0.0:80", TLS: true}.Check(tokens)
		var refused *auth.SettingError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, setting, refused.Setting)
		require.ErrorContains(t, err, "16 or more")
		require.NotContains(t, err.Error(), long[1:], "no error contains a token")
	}
}
