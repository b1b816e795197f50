package deploy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rates are the lab strategies' claims per second on a server,
// from docs/lab.md's tables.
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

// Otherwise README and docs/why.md show outdated rates.
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
