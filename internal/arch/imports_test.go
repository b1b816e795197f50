package arch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/arch"
)

func TestImportsAreAllowed(t *testing.T) {
	t.Parallel()
	packages := listModule(t)
	require.Greater(t, len(packages), 5, "the whole module is listed")
	require.Empty(t, arch.Violations(packages))
}

// The control of TestImportsAreAllowed: each line breaks one rule.
func TestPlantedViolationsAreFound(t *testing.T) {
	t.Parallel()
	for _, planted := range []arch.Package{
		{ImportPath: "dibs/models", Imports: []string{"dibs/lua"}},
		{ImportPath: "dibs/lua", Imports: []string{"dibs/api"}},
		{ImportPath: "dibs/api", Imports: []string{"dibs/syncer"}},
		{ImportPath: "dibs/api/problem", Imports: []string{"dibs/consumer"}},
		{ImportPath: "dibs/api/wire", Imports: []string{"dibs/api/claiming"}},
		{ImportPath: "dibs/api/claiming", Imports: []string{"dibs/api/operator"}},
		{ImportPath: "dibs/api/operator", Imports: []string{"dibs/api"}},
		{ImportPath: "dibs/api/claimed", Imports: []string{"dibs/internal/testkit/apitest"}},
		{ImportPath: "dibs/consumer", Imports: []string{"dibs/syncer/writer"}},
		{ImportPath: "dibs/syncer", Imports: []string{"dibs/cmd"}},
		{ImportPath: "dibs/finance", Imports: []string{"dibs/syncer"}},
		{ImportPath: "dibs/internal/migrations", Imports: []string{"dibs/models"}},
		{ImportPath: "dibs/cmd", Imports: []string{"dibs/internal/testkit/testenv"}},
		{ImportPath: "dibs", Imports: []string{"dibs/api"}},
		{ImportPath: "dibs/shed"},
		{ImportPath: "dibs/internal/shed"},
		{ImportPath: "dibs/syncer/retention", Imports: []string{"github.com/redis/go-redis/v9"}},
		{ImportPath: "dibs/syncer", Imports: []string{"github.com/bsm/redislock"}},
		{ImportPath: "dibs/api", Imports: []string{"github.com/redis/go-redis/v9/maintnotifications"}},
		{ImportPath: "dibs/models", Imports: []string{"dibs/internal/sleep"}},
	} {
		require.Len(t, arch.Violations([]arch.Package{planted}), 1, planted.ImportPath)
	}
}

func TestLawfulImportsPass(t *testing.T) {
	t.Parallel()
	require.Empty(t, arch.Violations([]arch.Package{
		{ImportPath: "dibs", Imports: []string{"os", "dibs/cmd"}},
		{ImportPath: "dibs/cmd", Imports: []string{"dibs/api", "dibs/syncer", "dibs/consumer"}},
		{ImportPath: "dibs/api/problem", Imports: []string{"dibs/api", "dibs/lua", "net/http"}},
		{ImportPath: "dibs/api", Imports: []string{"dibsother/syncer"}},
		{ImportPath: "dibs/lua", Imports: []string{"github.com/redis/go-redis/v9", "github.com/bsm/redislock"}},
		{ImportPath: "dibs/consumer", Imports: []string{"github.com/redis/go-redis/v9"}},
	}))
}

func listModule(t *testing.T) []arch.Package {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "dibs/...")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	require.NoError(t, cmd.Run(), complaint.String())
	var packages []arch.Package
	for decoder := json.NewDecoder(&out); ; {
		var p arch.Package
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
}
