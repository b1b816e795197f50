package mutants_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/mutants"
	"dibs/internal/testenv"
)

const (
	root = "../.."
	// perMutant bounds one mutant: to compile, to link and to run.
	perMutant = 5 * time.Minute
	// everydayMax bounds the mutants of everyday runs, which take about two seconds each on two quiet cores.
	everydayMax = 30
)

// load is every mutant of the folder.
func load(t *testing.T) (all []mutants.Mutant) {
	t.Helper()
	files, err := filepath.Glob("patches/*.patch")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		m, err := mutants.Parse(string(text))
		require.NoError(t, err, file)
		all = append(all, m)
	}
	return all
}

func overlay(t *testing.T, edits []mutants.Edit) string {
	t.Helper()
	abs, err := filepath.Abs(root)
	require.NoError(t, err)
	path, err := mutants.Overlay(abs, t.TempDir(), edits)
	require.NoError(t, err)
	return path
}

// run runs the tests of a mutant, with an overlay or, for "", on the code as it is.
func run(t *testing.T, m mutants.Mutant, overlay string) (passed bool, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), perMutant)
	defer cancel()
	args := []string{"test", "-count=1", "-failfast", "-vet=off", "-ldflags=-s -w", "-timeout", "2m", "-v", "-run", m.Run}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, m.Package)...) //nolint:gosec // the mutant's own words
	cmd.Dir = root
	cmd.Env = slices.DeleteFunc(os.Environ(), func(line string) bool {
		return strings.HasPrefix(line, "DIBS_") && !strings.HasPrefix(line, "DIBS_TEST_")
	})
	out, err := cmd.CombinedOutput()
	require.NoError(t, ctx.Err(), "%s: not run to its end", m.Name)
	require.NotContains(t, string(out), "[build failed]", "%s: it does not compile, so it says nothing", m.Name)
	require.NotContains(t, string(out), "[setup failed]", "%s", m.Name)
	require.Contains(t, string(out), "=== RUN", "%s: no test has this name", m.Name)
	return err == nil, string(out)
}

// TestEachMutantHasItsPlace: a mutant whose text is gone proves nothing, whether it is tried today or not.
func TestEachMutantHasItsPlace(t *testing.T) {
	t.Parallel()
	everyday := 0
	for _, m := range load(t) {
		overlay(t, m.Edits)
		if m.Everyday {
			everyday++
		}
	}
	require.LessOrEqual(t, everyday, everydayMax)
}

// TestMutantsAreKilled: with each mutant its tests fail, and without it they pass. Everyday runs try some; `make mutants` and `make soak` try
// all, and see first that the tests pass on the code as it is.
func TestMutantsAreKilled(t *testing.T) {
	t.Parallel()
	all, baseline := testenv.Soak() || os.Getenv("DIBS_MUTANTS") != "", map[string]bool{}
	for _, m := range load(t) {
		t.Run(m.Name, func(t *testing.T) { // one after the other: each uses every core to compile
			if !all && !m.Everyday {
				t.Skip("not an everyday one; `make mutants` tries it")
			}
			path := overlay(t, m.Edits)
			if key := m.Package + " " + m.Run; all && !baseline[key] {
				passed, said := run(t, m, "")
				require.True(t, passed, "the tests fail without the mutant, so they say nothing of it: %s", said)
				baseline[key] = true
			}
			passed, said := run(t, m, path)
			require.False(t, passed, "it survives: no test of %s -run %s fails. %s", m.Package, m.Run, said)
			require.Regexp(t, `(?m)^\s*--- FAIL|^panic: `, said, "it ended otherwise than by a test that fails")
		})
	}
}

func TestParse_RefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	const header, diff = "Mutant: m\nTest: ./p -run T\n\n", "--- a/f\n+++ b/f\n@@\n a\n-b\n+c\n"
	m, err := mutants.Parse(header + diff)
	require.NoError(t, err)
	require.Equal(t, mutants.Mutant{Name: "m", Package: "./p", Run: "T", Edits: []mutants.Edit{{File: "f", Old: "a\nb\n", New: "a\nc\n"}}}, m)
	for _, bad := range []string{"", header, "Mutant: m\n\n" + diff, "Test: ./p\n\n" + diff, "Why: x\n" + header + diff, header + "-b\n", header + diff + "x\n"} {
		_, err := mutants.Parse(bad)
		require.Error(t, err, bad)
	}
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "f"), []byte("a\nb\na\nb\n"), 0o600))
	_, err = mutants.Overlay(folder, t.TempDir(), m.Edits)
	require.ErrorContains(t, err, "2 times")
	_, err = mutants.Overlay(folder, t.TempDir(), []mutants.Edit{{File: "f", Old: "z", New: "y"}})
	require.ErrorContains(t, err, "0 times")
}
