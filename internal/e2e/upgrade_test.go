package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// programOfBefore builds the program as it was before the newest migration came, from the project's history; once for each commit.
func programOfBefore(t *testing.T) string {
	t.Helper()
	const root = "../.."
	newest, err := exec.CommandContext(t.Context(), "git", "-C", root, "log", "-1", "--diff-filter=A", "--format=%H", "--", "migrations/mysql").Output()
	commit := strings.TrimSpace(string(newest))
	if err != nil || commit == "" {
		t.Skip("UPGRADE NOT TRIED: this is no git clone, so there is no program of before the newest migration")
	}
	if files, err := filepath.Glob(filepath.Join(root, "migrations/mysql/*.sql")); err == nil && len(files) == 1 {
		t.Skip("UPGRADE NOT TRIED: no migration follows the baseline, so there is no schema to upgrade from")
	}
	folder, err := filepath.Abs(filepath.Join(root, ".tools"))
	require.NoError(t, err)
	program := filepath.Join(folder, "dibs-before-"+commit)
	if _, err := os.Stat(program); err == nil {
		return program
	}
	source := t.TempDir()
	unpack := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", fmt.Sprintf("git -C %s archive %s^ | tar -x -C %s", root, commit, source))
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Skipf("UPGRADE NOT TRIED: this clone is shallow, %s^ is not there: %s", commit, out)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", filepath.Join(source, "built"), ".")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("UPGRADE NOT TRIED: %s^ does not build: %v\n%s", commit, err, out)
	}
	require.NoError(t, os.MkdirAll(folder, 0o750))
	place := exec.CommandContext(t.Context(), "bash", "-c", fmt.Sprintf("rm -f %[1]s/dibs-before-*; cp %[2]s/built %[3]s.new && mv %[3]s.new %[3]s", folder, source, program))
	out, err := place.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

func migrationsIn(t *testing.T, s *servers) (n int) {
	t.Helper()
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT MAX(version_id) FROM goose_db_version").Scan(&n))
	return n
}

// TestGuide_Upgrade: the program of before the newest migration takes claims, the schema is brought up to date under it, and its processes
// are replaced one after the other. No claim fails, and each has its row.
func TestGuide_Upgrade(t *testing.T) {
	t.Parallel()
	before := programOfBefore(t)
	s := newServers(t, wishes{noSchema: true})
	settings := map[string]string{"DIBS_REDIS_URL": s.redisURL, "DIBS_MYSQL_DSN": s.dsn, "DIBS_NAME": "one"}
	old := exec.CommandContext(t.Context(), before, "migrate")
	old.Env = environ(settings)
	out, err := old.CombinedOutput()
	require.NoError(t, err, "%s", out)
	schema := migrationsIn(t, &s)
	var apis, all []*process
	for _, role := range []string{"syncer", "consumer", "finance", "api", "api"} {
		p := makeProcess(t, role, settings)
		p.program = before
		p.restart()
		if role == "api" {
			apis = append(apis, p)
		}
		all = append(all, p)
	}
	c := openCampaign(t, apis[0].url, campaign{Total: 100_000_000})
	b, front := balance(t, apis)
	stop := claimWithoutEnd(t, front, c.ID, 4)

	g := openGuide(t, "upgrade.md", &s, nil)
	g.run("migrate")
	require.Greater(t, migrationsIn(t, &s), schema, "the schema is a newer one")
	require.Equal(t, http.StatusOK, statusOf(apis[0], "/readyz"))
	for _, p := range all {
		require.Eventually(t, func() bool { return b.ready[0].Load() && b.ready[1].Load() }, upTimeout, pollEvery)
		p.stop()
		p.program = ""
		p.restart()
	}
	claimed, failed := stop()
	require.Empty(t, failed)
	require.Greater(t, claimed, int64(100), "there was load")
	(&system{servers: s, t: t}).awaitSynced(c.ID, int(claimed))
	require.Contains(t, g.run("compare"), "agree")
	t.Logf("schema %d, %d claims", schema, claimed)
}
