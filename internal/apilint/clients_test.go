package apilint

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testkit/servetest"
)

// What the TypeScript client is made with, at versions known to work.
var packages = []string{"openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3"}

// said is the output of docs/examples/shop.ts and shop.py, each
// on its own service.
const said = `same claim: true
over the limit: user_limit
batch: claimed sold_out
redeemed: redeemed
left: 0
missing: campaign_not_found
`

// serve runs `dibs serve` on embedded servers until the test
// ends and returns its URL.
func serve(t *testing.T) string {
	t.Helper()
	url, _ := servetest.Serve(t, cmd.Env{Environ: []string{"DIBS_LOG_LEVEL=error"}})
	return url
}

// runIn runs a program in a folder, requires success, and returns its output.
func runIn(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fetchTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = dir
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	require.NoError(t, command.Run(), "%s %v\n%s%s", program, args, &out, &problems)
	return out.String()
}

func example(t *testing.T, name, to string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs/examples", name))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, text, 0o600))
}

// The example must compile strictly with a client made from the
// served document, and run.
func TestClients_TypeScript(t *testing.T) {
	t.Parallel()
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("TYPESCRIPT CLIENT NOT TRIED: there is no npm on this machine")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"private":true,"type":"module"}`), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), fetchTimeout)
	defer cancel()
	install := exec.CommandContext(ctx, npm, append([]string{"install", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts"}, packages...)...)
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("TYPESCRIPT CLIENT NOT TRIED: npm can't get %v: %v\n%s", packages, err, out)
	}
	url, bin := serve(t), filepath.Join(dir, "node_modules/.bin")
	runIn(t, dir, filepath.Join(bin, "openapi-typescript"), url+"/openapi.json", "-o", "dibs.d.ts")
	example(t, "shop.ts", filepath.Join(dir, "shop.ts"))
	shop, err := os.ReadFile(filepath.Join(dir, "shop.ts"))
	require.NoError(t, err)
	command := regexp.MustCompile(`npx tsc (.+)`).FindSubmatch(shop) // as its head says
	require.NotNil(t, command)
	runIn(t, dir, filepath.Join(bin, "tsc"), strings.Fields(string(command[1]))...)
	require.Equal(t, said, runIn(t, dir, "node", "shop.js", url))
}

// The example makes its client from the document.
func TestClients_Python(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("PYTHON CLIENT NOT TRIED: there is no python3 on this machine")
	}
	dir := t.TempDir()
	example(t, "shop.py", filepath.Join(dir, "shop.py"))
	url := serve(t)
	require.Equal(t, said, strings.ReplaceAll(runIn(t, dir, python, "shop.py", url), "True", "true"))
}
