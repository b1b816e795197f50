package client_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The go.mod lines in docs/storefront.md must be enough to import this
// package.
func TestAnotherModuleUsesTheClientAsThePageSays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/storefront.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)<!-- tested: module -->\n```\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, found)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": strings.Replace(string(found[1]), "../dibs", root, 1),
		"main.go": `package main

import (
	"fmt"

	"dibs/client"
)

func main() {
	c, err := client.New(client.Config{BaseURL: "http://127.0.0.1:1"})
	fmt.Println(c != nil, err)
}
`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	// this module's dependencies are here already; tidy needs no others
	sums, err := os.ReadFile("../go.sum")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
	for _, args := range [][]string{{"mod", "tidy"}, {"run", "."}} {
		command := exec.CommandContext(t.Context(), "go", args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false", "GOWORK=off")
		out, err := command.CombinedOutput()
		require.NoError(t, err, "go %v\n%s", args, out)
		if args[0] == "run" {
			require.Equal(t, "true <nil>\n", string(out))
		}
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
	list.Dir, list.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false", "GOWORK=off")
	out, err := list.Output()
	require.NoError(t, err)
	require.Len(t, strings.Fields(string(out)), 4, "the client, two libraries and the program: %s", out)
}
