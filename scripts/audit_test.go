package scripts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// vulnerabilities is a database with one entry: all versions of a module.
func vulnerabilities(t *testing.T, module string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for name, text := range map[string]string{
		"index/db.json":      `{"modified":"2027-01-01T00:00:00Z"}`,
		"index/modules.json": `[{"path":"` + module + `","vulns":[{"id":"GO-2027-0001","modified":"2027-01-01T00:00:00Z"}]}]`,
		"index/vulns.json":   `[{"id":"GO-2027-0001","modified":"2027-01-01T00:00:00Z"}]`,
		"ID/GO-2027-0001.json": `{"schema_version":"1.3.1","id":"GO-2027-0001","modified":"2027-01-01T00:00:00Z","summary":"A test.","database_specific":{"url":"https://example.com"},` +
			`"affected":[{"package":{"name":"` + module + `","ecosystem":"Go"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}]}]}`,
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	return folder
}

func TestAuditWithoutANetwork(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		database, says string
		code           int
	}{
		"a linked module is vulnerable": {vulnerabilities(t, "github.com/redis/go-redis/v9"), "GO-2027-0001", 3},
		"another module is":             {vulnerabilities(t, "example.com/other"), "No vulnerabilities found", 0},
		"there is no copy":              {t.TempDir(), "NOTHING WAS CHECKED", 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := exec.CommandContext(t.Context(), "./audit")
			c.Env = append(os.Environ(), "VULNDB="+tc.database, "VULNDB_URL=http://127.0.0.1:1/vulndb.zip")
			said, _ := c.CombinedOutput()
			require.Equal(t, tc.code, c.ProcessState.ExitCode(), "%s", said)
			require.Contains(t, string(said), tc.says)
		})
	}
}

func TestNoticesNameEveryLinkedModule(t *testing.T) {
	t.Parallel()
	text, err := exec.CommandContext(t.Context(), "./notices").Output()
	require.NoError(t, err)
	for _, module := range []string{"github.com/go-sql-driver/mysql v", "github.com/redis/go-redis/v9 v", "Mozilla Public License"} {
		require.Contains(t, string(text), module)
	}
}
