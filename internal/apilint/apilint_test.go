// Package apilint checks the OpenAPI document with a public linter.
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
	"dibs/internal/testkit/apitest"
)

// redocly is the linter, at a version known to accept the document.
const redocly = "@redocly/cli@2.77.0"

// fetchTimeout limits a linter's run including its download.
const fetchTimeout = 8 * time.Minute

// npx runs an npm tool in a folder. Without npm or its registry, it skips.
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
	err = command.Run() // linters with findings fail
	if err != nil && out.Len() == 0 {
		t.Skipf("NOT CHECKED: %s does not run here: %v\n%s", tool, err, &problems)
	}
	return out.Bytes()
}

func TestRedocly_RecommendedHasNothingToSay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	document := apitest.Ask(apitest.NewServer(t, apitest.NewFake(), api.Config{}), "GET", "/openapi.json", "").Body.Bytes()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "openapi.json"), document, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "redocly.yaml"), []byte("extends: [recommended]\n"), 0o600))
	out := npx(t, dir, redocly, "redocly", "lint", "--config", "redocly.yaml", "--format=json", "openapi.json")
	var found struct {
		Totals   struct{ Errors, Warnings, Ignored int }
		Problems []struct{ RuleID, Message string }
	}
	require.NoError(t, json.Unmarshal(out, &found), "%s", out)
	require.Empty(t, found.Problems)
	require.Zero(t, found.Totals.Errors+found.Totals.Warnings+found.Totals.Ignored)
}
