package cmd_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shellBlock matches a block that its page marks as tested on `dibs serve`.
var shellBlock = regexp.MustCompile("(?s)<!-- tested: serve -->\n```sh\n(.*?)```")

// Each tested block of README and docs runs in a shell against its own
// embedded service. Every request must succeed.
func TestTheCommandsOfThePagesWork(t *testing.T) {
	t.Parallel()
	for page, blocks := range map[string]int{"../README.md": 1, "../docs/storefront.md": 2} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		found := shellBlock.FindAllStringSubmatch(string(text), -1)
		require.Len(t, found, blocks, page)
		for _, block := range found {
			t.Run(page, func(t *testing.T) {
				t.Parallel()
				serve := start(t, nil, "serve")
				requireShellWorks(t, strings.ReplaceAll(block[1], "http://127.0.0.1:8080", serve.url))
			})
		}
	}
}

// requireShellWorks runs commands. curl fails for a status above 399.
func requireShellWorks(t *testing.T, commands string) {
	t.Helper()
	_, err := exec.LookPath("curl")
	require.NoError(t, err, "install curl: the commands of the pages use it")
	script := "set -eu\ncurl() { command curl --fail-with-body -sS \"$@\"; echo; }\n" + commands
	shell := exec.CommandContext(t.Context(), "bash", "-c", script)
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s\n%s", commands, out)
	require.NotContains(t, string(out), `"status":4`, "%s", out)
}
