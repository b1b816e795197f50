package recovery

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// move is a step that leads from one state of a lot to another.
type move struct {
	from, to State
	by       Action
}

// faults lists what happens to a lot beside the steps.
var faults = []string{
	"Open --> Doubt: claim.lua fences, or a server loses data",
	"Open --> Lost: the partition is stopped",
	"Confirmed --> Doubt: a server loses data",
	"Copied --> Cold: counters change in MySQL",
	"Cold --> Doubt: an eviction is undone",
}

// diagram draws the states that moves connect, each pair by one line.
func diagram(moves map[move]bool) string {
	steps := make(map[[2]State][]string)
	for m := range moves {
		if m.by != ObserveAgain && !strings.HasPrefix(string(m.by), "wait") {
			steps[[2]State{m.from, m.to}] = append(steps[[2]State{m.from, m.to}], string(m.by))
		}
	}
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n  [*] --> Cold\n")
	for _, pair := range slices.SortedFunc(maps.Keys(steps), func(a, b [2]State) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	}) {
		slices.Sort(steps[pair])
		fmt.Fprintf(&b, "  %s --> %s: %s\n", pair[0], pair[1], strings.Join(steps[pair], ", "))
	}
	for _, fault := range faults {
		fmt.Fprintf(&b, "  %s\n", fault)
	}
	b.WriteString("```\n")
	return b.String()
}

// table writes the rows of a table, with how many observations each decides.
func table[T any](rows []row[T], counts map[string]int, hasPolicies bool) string {
	var b strings.Builder
	if hasPolicies {
		b.WriteString("|row|condition|auto|`--repair`|`--give-up-claims`|hits|\n|---|---|---|---|---|---|\n")
	} else {
		b.WriteString("|row|condition|step|hits|\n|---|---|---|---|\n")
	}
	for i := range rows {
		r := &rows[i]
		cells := []string{r.name, r.when}
		for j, a := range []Action{r.auto, r.repair, r.giveUp} {
			if hasPolicies || j == 0 {
				cells = append(cells, string(cmp.Or(a, "–")))
			}
		}
		fmt.Fprintf(&b, "|%s|%d|\n", strings.Join(cells, "|"), counts[r.name])
	}
	return b.String()
}

func waits() string {
	var b strings.Builder
	b.WriteString("|wait|until|who ends it|\n|---|---|---|\n")
	for _, a := range slices.Sorted(maps.Keys(Waits)) {
		fmt.Fprintf(&b, "|%s|%s|%s|\n", a, Waits[a].For, Waits[a].By)
	}
	return b.String()
}

var docs sync.Mutex // one test at a time writes

// requireDoc holds a part of a document to text. DIBS_WRITE=1 writes it.
func requireDoc(t *testing.T, file, part, text string) {
	t.Helper()
	docs.Lock()
	defer docs.Unlock()
	path := filepath.Join("..", "..", "docs", file)
	old, err := os.ReadFile(path)
	require.NoError(t, err)
	begin, end := "<!-- "+part+": written by the tests of syncer/recovery -->\n", "<!-- end of "+part+" -->\n"
	head, rest, found := strings.Cut(string(old), begin)
	require.True(t, found, "%s has no line %q", file, begin)
	was, tail, found := strings.Cut(rest, end)
	require.True(t, found, "%s has no line %q", file, end)
	if os.Getenv("DIBS_WRITE") == "1" {
		require.NoError(t, os.WriteFile(path, []byte(head+begin+text+end+tail), 0o644))
		return
	}
	require.Equal(t, text, was, "DIBS_WRITE=1 go test ./syncer/recovery writes %s", file)
}
