package auth_test

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api/auth"
	"dibs/internal/caller"
	"dibs/internal/testkit/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func newGate(t *testing.T, tokens auth.Tokens) *auth.Gate {
	t.Helper()
	g, err := auth.New(auth.Config{Addr: "127.0.0.1:80", Tokens: tokens, Logger: quiet()})
	require.NoError(t, err)
	return g
}

// askWho returns the actor of a request with a token, with "only" before
// one that may only act for itself, or the code of its refusal.
func askWho(g *auth.Gate, token string, need auth.Scope) string {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "127.0.0.1:7"
	who := &caller.Caller{}
	r = r.WithContext(caller.With(r.Context(), who))
	r.Header.Set("Authorization", "Bearer "+token)
	switch p := g.Check(r, need); {
	case p != nil:
		return string(p.Code)
	case who.User != "":
		return "only " + who.User
	}
	return who.Actor
}

func ask(g *auth.Gate, token string, need auth.Scope) string {
	return strings.TrimPrefix(askWho(g, token, need), "only ")
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func sum(token string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(token))) }

// write replaces a file atomically.
func write(t *testing.T, path string, lines ...string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

func lineOf(t *testing.T, name, role, token string) string {
	t.Helper()
	line, err := auth.Line(name, role, token, time.Now().Add(time.Hour))
	require.NoError(t, err)
	return line
}

func TestTokensFile_NamesTheActorAndEndsWhenItSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "tokens")
		soon := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
		write(t, file, "# who may do what", "", "ann admin "+sum("a"), "  shop-1\tstorefront  "+sum("s1"), "shop-1 storefront "+sum("s2")+" expires="+soon,
			lineOf(t, "eve", "viewer", "v"))
		g := newGate(t, auth.Tokens{File: file, Viewer: "of-the-setting"})
		require.Equal(t, "ann", ask(g, "a", auth.Viewer), "admin may do all")
		require.Equal(t, "shop-1", ask(g, "s1", auth.Storefront))
		require.Equal(t, "shop-1", ask(g, "s2", auth.Storefront), "several of a role")
		require.Equal(t, "eve", ask(g, "v", auth.Viewer))
		require.Equal(t, "viewer", ask(g, "of-the-setting", auth.Viewer))
		require.Equal(t, "forbidden", ask(g, "v", auth.Admin))
		for _, wrong := range []string{"", "A", sum("a"), "a "} {
			require.Equal(t, "unauthorized", ask(g, wrong, auth.Viewer), "%q", wrong)
		}
		<-time.After(time.Minute)
		require.Equal(t, "unauthorized", ask(g, "s2", auth.Storefront), "expired")
		require.Equal(t, "shop-1", ask(g, "s1", auth.Storefront))
	})
}

func TestTokens_AreReadAgainWhenTheirFileChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		list, one := filepath.Join(dir, "tokens"), filepath.Join(dir, "admin")
		write(t, list, "ann admin "+sum("first"))
		write(t, one, "  alone")
		g := newGate(t, auth.Tokens{File: list, AdminFile: one})
		require.Equal(t, "ann", ask(g, "first", auth.Admin))
		require.Equal(t, "admin", ask(g, "alone", auth.Admin))
		write(t, list, "ann admin "+sum("second"))
		write(t, one, "another")
		<-time.After(time.Second)
		require.Equal(t, "unauthorized", ask(g, "first", auth.Admin))
		require.Equal(t, "unauthorized", ask(g, "alone", auth.Admin))
		require.Equal(t, "ann", ask(g, "second", auth.Admin))
		require.Equal(t, "admin", ask(g, "another", auth.Admin))
		require.NoError(t, os.Remove(list))
		<-time.After(time.Second)
		require.Equal(t, "ann", ask(g, "second", auth.Admin), "a missing file changes nothing")
	})
}

// A mistake in a line must not keep a removed token valid.
func TestTokensFile_ALineThatIsWrongGrantsNothingAndTheOthersCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		list := filepath.Join(t.TempDir(), "tokens")
		write(t, list, "ann admin "+sum("a"), "bob admin "+sum("b"))
		g := recordingGate(t, auth.Tokens{File: list, Viewer: "v"})
		require.InDelta(t, 2, g.value(t, "dibs_credentials_entries", "tokens"), 0)
		write(t, list, "ann admin "+sum("a"), "cid admin sha256:12", strings.Repeat("x", 100_000), "dan viewer "+sum("d"))
		<-time.After(time.Second)
		for range 3 {
			require.Equal(t, "unauthorized", ask(g.Gate, "b", auth.Admin), "its line was removed")
			require.Equal(t, "ann", ask(g.Gate, "a", auth.Admin))
			require.Equal(t, "dan", ask(g.Gate, "d", auth.Viewer))
			<-time.After(time.Second)
		}
		require.InDelta(t, 2, g.value(t, "dibs_credentials_entries", "tokens"), 0)
		require.InDelta(t, 3, g.value(t, "dibs_credentials_unreadable_seconds", "tokens"), 0.1)
		require.Equal(t, 1, strings.Count(g.log.String(), "line 2"), "logged, and not with each request")

		write(t, list, "")
		<-time.After(time.Second)
		require.Equal(t, "unauthorized", ask(g.Gate, "a", auth.Admin), "an empty file has no tokens")
		require.Equal(t, "viewer", ask(g.Gate, "v", auth.Viewer))
		require.Zero(t, g.value(t, "dibs_credentials_entries", "tokens"))
		require.Zero(t, g.value(t, "dibs_credentials_unreadable_seconds", "tokens"))
		require.NoError(t, os.Remove(list))
		<-time.After(2 * time.Second)
		ask(g.Gate, "v", auth.Viewer)
		<-time.After(time.Minute)
		require.InDelta(t, 60, g.value(t, "dibs_credentials_unreadable_seconds", "tokens"), 0.1)
	})
}

func TestTokensFile_RefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens")
	for _, line := range []string{
		"ann admin", "ann admin " + sum("a")[7:], "ann admin sha256:zz", "ann root " + sum("a"), "ann user " + sum("a"),
		"ann admin " + sum("a") + "00",
		"ann admin " + sum("a") + " until=2027-01-01T00:00:00Z", "ann admin " + sum("a") + " expires=tomorrow",
		"ok viewer " + sum("b") + "\nann admin " + sum("b"), strings.Repeat("#", 1<<20),
	} {
		write(t, file, line)
		err := auth.Door{Addr: "127.0.0.1:80"}.Check(auth.Tokens{File: file})
		var refused *auth.SettingError
		require.ErrorAs(t, err, &refused, line)
		require.Equal(t, "TOKENS_FILE", refused.Setting)
	}
	write(t, file, "")
	for setting, tokens := range map[string]auth.Tokens{
		"TOKENS_FILE": {File: filepath.Join(dir, "none")}, "ADMIN_TOKEN_FILE": {AdminFile: file}, "STOREFRONT_TOKEN_FILE": {StorefrontFile: dir},
		"VIEWER_TOKEN_FILE": {Viewer: "v", ViewerFile: file}, "STOREFRONT_TOKEN": {Admin: "a", Storefront: "a"}, "VIEWER_TOKEN": {Viewer: "v v"},
	} {
		err := auth.Door{Addr: "127.0.0.1:80"}.Check(tokens)
		var refused *auth.SettingError
		require.ErrorAs(t, err, &refused, setting)
		require.Equal(t, setting, refused.Setting)
	}
}

const long = "sixteen-letters!"

func TestDoor_WithoutTokensOnlyAtHome(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1:8080", "127.8.9.1:0", "[::1]:8080", "localhost:8080", "LOCALHOST:80", "[::ffff:127.0.0.1]:80"} {
		for _, tokens := range []auth.Tokens{{}, {Admin: "a"}} {
			require.NoError(t, auth.Door{Addr: addr}.Check(tokens), addr)
		}
	}
	for _, addr := range []string{":8080", "0.0.0.0:8080", "[::]:8080", "192.168.1.7:80", "127.0.0.1.evil.org:80", "[::ffff:10.0.0.1]:80"} {
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
