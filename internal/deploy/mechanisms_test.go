package deploy_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const mechanismsPage = "docs/mechanisms.md"

// docs/mechanisms.md names every mechanism by a file and a symbol in it, and counts them.
func TestMechanisms_AreWhereThePageSays(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + mechanismsPage)
	require.NoError(t, err)
	require.Empty(t, faultsOfMechanisms(string(text)))
}

func TestMechanisms_FaultsAreFound(t *testing.T) {
	t.Parallel()
	written, err := os.ReadFile(root + mechanismsPage)
	require.NoError(t, err)
	const from, loops = "`syncer/leader.go: Run`", "(#background-loops)|"
	for _, planted := range []struct{ old, text, fault string }{
		{from, "`syncer/leader.go: NoSuchName`", "syncer/leader.go has no NoSuchName"},
		{from, "`syncer/leader.go: Ru`", "syncer/leader.go has no Ru"},
		{from, "`syncer/none.go: Run`", "syncer/none.go"},
		{from, "`syncer/leader.go`", "no place"},
		{".sql: seen_seq`", ".sql: accepted`", "has no accepted"},
		{from, "`lua/lock.go: RenewUntil`", "twice"},
		{"|" + from + "|stands for leader|\n", "", "Background loops"},
		{loops, loops + "1", "Background loops"},
		{"|total|", "|total|1", "total"},
		{"(#background-loops)", "(#loops)", "Background loops"},
	} {
		text := strings.Replace(string(written), planted.old, planted.text, 1)
		require.NotEqual(t, string(written), text, planted.old)
		require.Contains(t, strings.Join(faultsOfMechanisms(text), "\n"), planted.fault)
	}
}

var (
	mechanismPlace = regexp.MustCompile("^\\|`([^`: ]+): (\\w+)`\\|[^|]+\\|$")
	mechanismCount = regexp.MustCompile(`^\|(?:\[[^\]]*\]\(#([a-z-]+)\)|(total))\|(\d+)\|$`)
)

// faultsOfMechanisms compares the page with the files that it names, and its sums with its lines.
func faultsOfMechanisms(page string) (faults []string) {
	begin, rest, _ := strings.Cut(page, "\n## ")
	sums := make(map[string]int)
	for line := range strings.Lines(begin) {
		if found := mechanismCount.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
			sums[found[1]+found[2]], _ = strconv.Atoi(found[3])
		}
	}
	total := 0
	for section := range strings.SplitSeq(rest, "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		var places []string
		for line := range strings.Lines(body) {
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, "|") || line == "|place|what|" || line == "|---|---|" {
				continue
			}
			place, _, _ := strings.Cut(line[1:], "|")
			if slices.Contains(places, place) {
				faults = append(faults, "twice: "+place)
			}
			places = append(places, place)
			faults = append(faults, faultOfPlace(line)...)
		}
		total += len(places)
		if n := sums[strings.ReplaceAll(strings.ToLower(title), " ", "-")]; n != len(places) || n == 0 {
			faults = append(faults, fmt.Sprintf("%s: the table says %d, there are %d lines", title, n, len(places)))
		}
	}
	if sums["total"] != total {
		faults = append(faults, fmt.Sprintf("the total says %d, there are %d lines", sums["total"], total))
	}
	return faults
}

// faultOfPlace reports a place that is not there.
func faultOfPlace(line string) []string {
	place := mechanismPlace.FindStringSubmatch(line)
	if place == nil {
		return []string{"no place: " + line}
	}
	text, err := os.ReadFile(root + place[1])
	pattern := `\b` + place[2] + `\b`
	if strings.HasSuffix(place[1], ".sql") { // a column
		pattern = `(?m)^ +` + place[2] + ` +[A-Z]`
	}
	switch {
	case err != nil:
		return []string{err.Error()}
	case !regexp.MustCompile(pattern).Match(text):
		return []string{place[1] + " has no " + place[2]}
	}
	return nil
}
