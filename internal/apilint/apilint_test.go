// Package apilint holds the OpenAPI document to the linters that others use.
package apilint

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
)

// The linters, of versions that are known to agree with the document.
const (
	redocly  = "@redocly/cli@2.77.0"
	spectral = "@stoplight/spectral-cli@6.16.3"
)

// fetchTimeout bounds a linter with its way from the registry.
const fetchTimeout = 8 * time.Minute

// npx runs a tool of npm's in a folder. A machine without npm, or without its registry, is told so and skips.
func npx(t *testing.T, dir, tool string, args ...string) []byte {
	t.Helper()
	path, err := exec.LookPath("npx")
	if err != nil {
		t.Skip("NOT CHECKED: there is no npx on this machine to run " + tool)
	}
	ctx, cancel := context.WithTimeout(t.Context(), fetchTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, path, append([]string{"--yes", "--prefer-offline", "--package", tool, "--"}, args...)...)
	command.Dir = dir
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	err = command.Run() // linters that find something fail
	if err != nil && out.Len() == 0 {
		t.Skipf("NOT CHECKED: %s does not run here: %v\n%s", tool, err, &problems)
	}
	return out.Bytes()
}

// folder holds the document.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	document := apitest.Ask(apitest.NewServer(t, apitest.NewFake(), api.Config{}), "GET", "/openapi.json", "").Body.Bytes()
	for name, text := range map[string]string{
		"openapi.json": string(document), "redocly.yaml": "extends: [recommended]\n", "spectral.yaml": "extends: [\"spectral:oas\"]\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestRedocly_RecommendedHasNothingToSay(t *testing.T) {
	t.Parallel()
	out := npx(t, folder(t), redocly, "redocly", "lint", "--config", "redocly.yaml", "--format=json", "openapi.json")
	var found struct {
		Totals   struct{ Errors, Warnings, Ignored int }
		Problems []struct{ RuleID, Message string }
	}
	require.NoError(t, json.Unmarshal(out, &found), "%s", out)
	require.Empty(t, found.Problems)
	require.Zero(t, found.Totals.Errors+found.Totals.Warnings+found.Totals.Ignored)
}

func TestSpectral_HasNothingToSay(t *testing.T) {
	t.Parallel()
	out := npx(t, folder(t), spectral, "spectral", "lint", "-r", "spectral.yaml", "-f", "json", "--fail-severity", "hint", "openapi.json")
	out = out[:bytes.LastIndexByte(out, ']')+1] // a line for people may follow
	var found []struct{ Code, Message string }
	require.NoError(t, json.Unmarshal(out, &found), "%s", out)
	require.Empty(t, found)
}
