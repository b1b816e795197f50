package scripts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModulePath(t *testing.T) {
	t.Parallel()
	clone := filepath.Join(t.TempDir(), "clone")
	run := func(name string, args ...string) (string, error) {
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = clone
		out, err := c.CombinedOutput()
		return string(out), err
	}
	require.NoError(t, os.Mkdir(clone, 0o700))
	text, err := run("sh", "-c", "tar -C '"+root(t)+"' --exclude=./.git --exclude=./.tools --exclude=./bin --exclude=./dist -cf - . | tar -xf - && git init -q && git add -A")
	require.NoError(t, err, text)
	text, err = run("scripts/module-path", "Not a path")
	require.Error(t, err)
	require.Contains(t, text, "usage")

	text, err = run("scripts/module-path", "example.com/shop/dibs")
	require.NoError(t, err, text)
	imports, err := run("go", "list", "-test", "-f", `{{join .Imports "\n"}}{{if .Error}}{{.Error}}{{end}}`, "./...")
	require.NoError(t, err, imports)
	for line := range strings.Lines(imports) {
		require.False(t, strings.HasPrefix(line, "dibs/"), line)
	}
	require.Contains(t, imports, "example.com/shop/dibs/models")
	text, err = run("go", "build", "./models", "./internal/split", "./internal/build")
	require.NoError(t, err, text)
	text, err = run("git", "grep", "-n", "-e", "-X dibs/", "-e", "pkg: dibs/", "--", ":!*_test.go")
	require.Error(t, err, text)
}

func root(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs("..")
	require.NoError(t, err)
	return folder
}
