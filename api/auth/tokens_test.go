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
)

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

func write(t *testing.T, path string, lines ...string) {
	t.Helper()
	require.NoError(t, writeFile(path, lines...))
}

// writeFile replaces a file atomically.
func writeFile(path string, lines ...string) error {
	next := path + ".new"
	if err := os.WriteFile(next, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func TestTokensFile_NamesTheActorAndEndsWhenItSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "tokens")
		soon := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
		write(t, file, "# who may do what", "", "ann admin "+sum("a"), "  shop-1\tstorefront  "+sum("s1"), "shop-1 storefront "+sum("s2")+" expires="+soon,
			"eve viewer "+sum("v"))
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
		write(t, list, "cid admin "+sum("third"))
		<-time.After(time.Second)
		require.Equal(t, "cid", ask(g, "third", auth.Admin))
		require.Equal(t, "unauthorized", ask(g, "second", auth.Admin))
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
		"ann", "ann admin", "ann admin " + sum("a")[7:], "ann admin sha256:", "ann admin sha256:zz", "ann admin " + sum("a")[:20], "ann root " + sum("a"),
		"ann user " + sum("a"), "ann admin " + sum("a") + "00",
		"ann admin " + sum("a") + " 2027-01-01T00:00:00Z", "ann admin " + sum("a") + " until=2027-01-01T00:00:00Z", "ann admin " + sum("a") + " expires=tomorrow",
		"ann admin " + sum("a") + " expires=2027-01-01T00:00:00Z more", strings.Repeat("n", 129) + " admin " + sum("a"),
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

func TestLine_IsTakenByTheFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	line, err := auth.Line("ann", "viewer", "secret", time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.NotContains(t, line, "secret")
	write(t, file, line)
	require.Equal(t, "ann", ask(newGate(t, auth.Tokens{File: file}), "secret", auth.Viewer))
	for _, bad := range [][2]string{{"", "viewer"}, {"a b", "viewer"}, {"ann", "root"}, {"ann", "user"}} {
		_, err := auth.Line(bad[0], bad[1], "secret", time.Time{})
		require.Error(t, err, bad)
	}
}
