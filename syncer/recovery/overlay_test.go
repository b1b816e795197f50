package recovery

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// overlays are mistakes in the conditions of the tables: a piece of a file, and what stands in its place.
var overlays = []struct{ name, file, old, wrong string }{
	{"a tombstone of other claims is taken for an eviction", "observation.go", "*t == Tombstone{m.Epoch, m.SyncedSeq}", "t.Seq > 0"},
	{"a tombstone is taken whatever became of the stream", "observation.go", "t != nil && m.Generation == l.Generation &&", "t != nil &&"},
	{"a copy is confirmed whatever it was made from", "observation.go", "*r.Copy == known", "known.SyncedSeq >= 0"},
	{"the number of a load is one that was evicted", "plan.go", "max(step.Epoch, 1+t.Epoch)", "step.Epoch"},
	{"what callers saw is no evidence", "observation.go", "max(rows.LastSeq, m.SeenSeq, m.ParkedSeq)", "max(rows.LastSeq, m.ParkedSeq)"},
	{"a lot is sound under another stream", "observation.go", "r.At.Epoch == m.Epoch && m.Generation == l.Generation &&", "r.At.Epoch == m.Epoch &&"},
	{"a lot is sound with fewer claims", "observation.go", `r.At.Behind(known) == ""`, "known.Epoch > 0"},
	{"the number of a load is one that a caller saw", "plan.go", "max(l.MySQL.LoadAttempts, l.Redis.At.Epoch, l.Reported.Epoch)",
		"max(l.MySQL.LoadAttempts, l.Redis.At.Epoch)"},
	{"a lot that Redis does not hold is repaired unasked", "plan.go", "l.MySQL.IsRolledBack && l.Redis.Held == Present", "l.MySQL.IsRolledBack"},
	{"a restored MySQL is told by flushes alone", "observation.go", "p.Lacking > 0 || p.Recorded.Tip.Less(p.Remembered) ||", "p.Lacking > 0 ||"},
}

// TestTable_EveryConditionIsNeeded builds the tables with one mistake each. The tests of the tables find it.
func TestTable_EveryConditionIsNeeded(t *testing.T) {
	t.Parallel()
	for _, m := range overlays {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, err := filepath.Abs(m.file)
			require.NoError(t, err)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(text), m.old), "%s has it once", m.file)
			mutant := filepath.Join(dir, m.file)
			require.NoError(t, os.WriteFile(mutant, []byte(strings.Replace(string(text), m.old, m.wrong, 1)), 0o600))
			overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutant}})
			require.NoError(t, err)
			file := filepath.Join(dir, "overlay.json")
			require.NoError(t, os.WriteFile(file, overlay, 0o600))
			cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-overlay", file, "-run", "^TestTable_(EveryObs|APartition)", ".")
			out, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(out), errTable.Error(), "%s", out)
		})
	}
}
