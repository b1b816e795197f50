package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The real script makes a release in a copy of the project's
// files. A fake go writes its arguments into the binary's file.
func TestRelease_MakesBinariesNotesAndChecksums(t *testing.T) {
	t.Parallel()
	repo := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), name, args...)
		command.Dir = repo
		command.Env = append(os.Environ(), "PATH="+filepath.Join(repo, "bin")+":"+os.Getenv("PATH"), "PLATFORMS=linux/arm64 darwin/arm64",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
			"GIT_COMMITTER_DATE=2026-11-22T10:00:00Z")
		out, err := command.CombinedOutput()
		if err != nil {
			return "failed: " + string(out)
		}
		return string(out)
	}
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(repo, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(repo, path), []byte(text), mode))
	}
	script, err := os.ReadFile(root + "scripts/release")
	require.NoError(t, err)
	write("scripts/release", string(script), 0o755)
	write("scripts/notices", "#!/bin/sh\necho notices\n", 0o755)
	write("bin/go", "#!/bin/sh\nlast=; for a in \"$@\"; do [ \"$last\" = -o ] || [ \"$last\" = -output ] && out=$a; last=$a; done\n"+
		"echo \"$GOOS/$GOARCH $CGO_ENABLED $*\" >\"$out\"\n", 0o755)
	write("deploy/chart/Chart.yaml", "name: dibs\nversion: 0.1.0\nappVersion: \"0.1.0\"\n", 0o644)
	write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n- Not yet.\n\n## [1.2.3] - 2026-11-22\n\n### Added\n\n- It ships.\n\n## [1.2.2]\n\n- Old.\n", 0o644)
	run("git", "init", "-q")
	run("git", "add", ".")
	run("git", "commit", "-qm", "first")

	require.Contains(t, run("scripts/release", "1.2.3"), "usage:")
	require.Contains(t, run("scripts/release", "v9.9.9"), `CHANGELOG.md has no section "## [9.9.9]"`)
	sums := run("scripts/release", "v1.2.3")
	for _, name := range []string{"dibs-v1.2.3-linux-arm64", "dibs-v1.2.3-darwin-arm64", "dibs-chart-1.2.3.tgz", "dibs-v1.2.3.cdx.json", "NOTES.md", "THIRD_PARTY_NOTICES.txt"} {
		require.Contains(t, sums, "  "+name+"\n")
	}
	notes, err := os.ReadFile(filepath.Join(repo, "dist/NOTES.md"))
	require.NoError(t, err)
	require.Equal(t, "### Added\n\n- It ships.", strings.TrimSpace(string(notes)))
	asked, err := os.ReadFile(filepath.Join(repo, "dist/dibs-v1.2.3-linux-arm64"))
	require.NoError(t, err)
	require.Contains(t, string(asked), "linux/arm64 0 build -trimpath")
	require.Contains(t, string(asked), ".version=v1.2.3 ")
	require.Contains(t, string(asked), ".date=2026-11-22T10:00:00Z")
	require.Equal(t, "name: dibs\nversion: 1.2.3\nappVersion: \"1.2.3\"\n", run("tar", "-xzOf", "dist/dibs-chart-1.2.3.tgz", "dibs/Chart.yaml"))
	require.NotContains(t, run("sh", "-c", "cd dist && sha256sum -c SHA256SUMS"), "failed")
}
