package torture

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// edit replaces a text, which occurs once, of a file of the module.
type edit struct{ file, old, new string }

// build builds the dibs program with edits, without touching the files.
func build(t *testing.T, edits ...edit) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	folder := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, e := range edits {
		path := filepath.Join(root, e.file)
		from := path
		if changed := overlay.Replace[path]; changed != "" {
			from = changed
		}
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), e.old), "%s must hold this once, or the mutant is none: %s", e.file, e.old)
		changed := filepath.Join(folder, strings.ReplaceAll(e.file, "/", "_"))
		require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o600))
		overlay.Replace[path] = changed
	}
	file, err := json.Marshal(overlay)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "overlay.json"), file, 0o600))
	path := filepath.Join(folder, "dibs")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-overlay", filepath.Join(folder, "overlay.json"), "-o", path, ".")
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
