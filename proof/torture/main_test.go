package torture

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/proof/mutants"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// edit replaces a text that occurs once in a module's file.
type edit struct{ file, old, new string }

// overlay writes copies of the files with the edits, for the
// toolchain's -overlay.
func overlay(t *testing.T, root string, edits []edit) string {
	t.Helper()
	all := make([]mutants.Edit, len(edits))
	for i, e := range edits {
		all[i] = mutants.Edit{File: e.file, Old: e.old, New: e.new}
	}
	path, err := mutants.Overlay(root, t.TempDir(), all)
	require.NoError(t, err)
	return path
}

// build builds the dibs program with edits, without changing the files.
func build(t *testing.T, edits ...edit) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "dibs")
	cmd := exec.Command("go", testenv.GoArgs("build", "-buildvcs=false", "-overlay", overlay(t, root, edits), "-o", path, ".")...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// torture runs the kit and returns its report; lines go to the test's log.
func torture(t *testing.T, o Options) *Report {
	t.Helper()
	o.Progress = func(line string) { t.Log(line) }
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	return report
}
