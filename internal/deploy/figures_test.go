package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rates are the claims a second of the lab's strategies on a server, by the tables of docs/lab.md.
func rates(t *testing.T, server string) map[string]string {
	t.Helper()
	_, text, found := strings.Cut(pages(t)["docs/lab.md"], "\n### On "+server+"\n")
	require.True(t, found, server)
	text, _, _ = strings.Cut(text, "\n### ")
	all := make(map[string]string)
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| ") && len(cells) > 2 {
			all[strings.TrimPrefix(cells[0], "| ")] = cells[1]
		}
	}
	return all
}

// What the first page and docs/why.md say of rates is what the lab measured last.
func TestFigures_OfTheFirstPageAreThoseOfTheLab(t *testing.T) {
	t.Parallel()
	mysql, mariadb := rates(t, "MySQL"), rates(t, "MariaDB")
	pages := pages(t)
	update := "MySQL conditional UPDATE"
	require.Contains(t, pages["README.md"], "it made "+mysql[update]+" a second\non MySQL and "+mariadb[update]+" on MariaDB")
	why := pages["docs/why.md"]
	require.Contains(t, why, "sold "+mysql[update]+" units a second")
	require.Contains(t, why, "and "+mariadb[update]+" on MariaDB")
	for way, strategy := range map[string]string{
		"conditional UPDATE": update, "SELECT … FOR UPDATE": "MySQL SELECT … FOR UPDATE", "Dibs over HTTP": "Dibs, over HTTP",
		"a lock per coupon, counter in Redis, row in MySQL": "one lock a coupon: Redis counter, MySQL row",
		"a Lua script, then an UPDATE a claim":              "Lua, then one UPDATE a claim",
	} {
		require.Contains(t, why, "\n| "+way+" | "+mysql[strategy]+" |")
	}
}

// How much code there is, is said within a tenth.
func TestFigures_OfTheFirstPageSayHowMuchCodeThereIs(t *testing.T) {
	t.Parallel()
	said := regexp.MustCompile(`Some\n?\s*([\d,]+) lines of Go, Lua and SQL`).FindStringSubmatch(pages(t)["README.md"])
	require.NotNil(t, said)
	want, err := strconv.Atoi(strings.ReplaceAll(said[1], ",", ""))
	require.NoError(t, err)
	list, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "*.go", "*.lua", "*.sql").Output()
	require.NoError(t, err)
	lines := 0
	for path := range strings.Lines(string(list)) {
		path = strings.TrimSpace(path)
		if strings.HasSuffix(path, "_test.go") || isSupport(path) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		lines += strings.Count(string(text), "\n")
	}
	require.InEpsilon(t, want, lines, 0.1)
}

// isSupport reports whether a file is for tests and proofs alone.
func isSupport(path string) bool {
	for _, folder := range []string{"proof/", "internal/testenv/", "internal/apitest/", "internal/syncertest/", "internal/crowd/", "internal/servetest/"} {
		if strings.HasPrefix(path, folder) {
			return true
		}
	}
	return false
}
