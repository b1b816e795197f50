package recovery

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutants are tables with one mistake: a row that is missing, or a cell that has another policy's action.
func mutants() map[string][]row[Lot] {
	all := make(map[string][]row[Lot])
	for i := range lotRows {
		r := lotRows[i]
		all["without "+r.name] = slices.Delete(slices.Clone(lotRows), i, i+1)
		cells := []Action{r.auto, r.repair, r.giveUp}
		for j := range cells {
			for _, other := range []int{j - 1, j + 1} {
				if other < 0 || other >= len(cells) || cells[other] == cells[j] {
					continue
				}
				changed := slices.Clone(cells)
				changed[j] = cells[other]
				rows := slices.Clone(lotRows)
				rows[i].auto, rows[i].repair, rows[i].giveUp = changed[0], changed[1], changed[2]
				all[fmt.Sprintf("%s of %s as of %s", r.name, Policy(j), Policy(other))] = rows
			}
		}
	}
	return all
}

// sameTables are mutants that decide as the table does: L11 decides on every sound lot by auto, before these rows are asked.
var sameTables = []string{"L12 of auto as of --repair", "L29 of auto as of --repair", "L30 of auto as of --repair", "L37 of auto as of --repair"}

// TestTable_EveryRowIsNeeded: a table without a row, or with another policy's action in a cell, is found to be wrong.
func TestTable_EveryRowIsNeeded(t *testing.T) {
	t.Parallel()
	all := mutants()
	for _, name := range sameTables {
		require.Contains(t, all, name)
		delete(all, name)
	}
	for name, rows := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var err error
			for _, every := range []int{101, 13, 1} { // few observations show some
				if _, err = explore(rows).check(every); err != nil {
					break
				}
			}
			require.ErrorIs(t, err, errTable)
		})
	}
}
