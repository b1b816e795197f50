package mutants_test

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/proof/mutants"
)

const (
	root = "../.."
	// perRun limits one go test, with compiling and linking.
	perRun = 5 * time.Minute
)

// triesAll reports whether each mutant is tried separately.
func triesAll() bool { return testenv.Soak() || os.Getenv("DIBS_MUTANTS") != "" }

func load(t *testing.T) (all []mutant) {
	t.Helper()
	files, err := filepath.Glob("patches/*.patch")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		m, err := parse(string(text))
		require.NoError(t, err, file)
		all = append(all, m)
	}
	return all
}

func everyday(t *testing.T) map[string][]mutant {
	t.Helper()
	byPackage := make(map[string][]mutant)
	for _, m := range load(t) {
		if m.Everyday {
			byPackage[m.Package] = append(byPackage[m.Package], m)
		}
	}
	return byPackage
}

func overlay(t *testing.T, all ...mutant) string {
	t.Helper()
	abs, err := filepath.Abs(root)
	require.NoError(t, err)
	var edits []mutants.Edit
	for i := range all {
		edits = append(edits, all[i].Edits...)
	}
	path, err := mutants.Overlay(abs, t.TempDir(), edits)
	require.NoError(t, err)
	return path
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// run runs a package's tests with an overlay or, for "", on the
// code as it is, and returns those that failed.
func run(t *testing.T, pkg, tests, overlay string, flags ...string) (failed []string, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), perRun)
	defer cancel()
	args := testenv.GoArgs("test", "-count=1", "-vet=off", "-ldflags=-s -w", "-timeout", "2m", "-v", "-run", tests)
	args = append(args, flags...)
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = root
	cmd.Env = slices.DeleteFunc(os.Environ(), func(line string) bool {
		return strings.HasPrefix(line, "DIBS_") && !strings.HasPrefix(line, "DIBS_TEST_")
	})
	out, err := cmd.CombinedOutput()
	require.NoError(t, ctx.Err(), "%s: not run to its end", pkg)
	require.NotContains(t, string(out), "[build failed]", "%s: it does not compile, so it says nothing", pkg)
	require.NotContains(t, string(out), "[setup failed]", "%s", pkg)
	require.Contains(t, string(out), "=== RUN", "%s: no test has this name", pkg)
	for _, found := range failedTest.FindAllStringSubmatch(string(out), -1) {
		failed = append(failed, found[1])
	}
	if err != nil && len(failed) == 0 {
		require.Regexp(t, `(?m)^panic: `, string(out), "it ended otherwise than by a test that fails")
		failed = []string{"panic"}
	}
	return failed, string(out)
}

// A mutant whose text is missing from its file proves nothing.
func TestEachMutantHasItsPlace(t *testing.T) {
	t.Parallel()
	for _, m := range load(t) {
		overlay(t, m)
	}
	for _, group := range everyday(t) {
		overlay(t, group...)
	}
}

// With each mutant its tests must fail, and without it pass.
// `make mutants` and `make soak` run this, one mutant at a time.
func TestMutantsAreKilled(t *testing.T) {
	t.Parallel()
	if !triesAll() {
		t.Skip("`make mutants` tries each mutant by itself; see TestTheWorstMutantsAreKilled")
	}
	baseline := make(map[string]bool)
	for _, m := range load(t) {
		t.Run(m.Name, func(t *testing.T) { // sequential: each uses every core to compile
			path := overlay(t, m)
			if key := m.Package + " " + m.Run; !baseline[key] {
				failed, said := run(t, m.Package, m.Run, "")
				require.Empty(t, failed, "the tests fail without the mutant, so they say nothing of it: %s", said)
				baseline[key] = true
			}
			failed, said := run(t, m.Package, m.Run, path, "-failfast")
			require.NotEmpty(t, failed, "it survives: no test of %s -run %s fails. %s", m.Package, m.Run, said)
		})
	}
}

// Everyday mutants are built in together, per package, at a fraction of
// separate builds. Each must be noticed by a test that no other of them is
// meant for. TestMutantsAreKilled tries them separately.
func TestTheWorstMutantsAreKilled(t *testing.T) {
	t.Parallel()
	if triesAll() {
		t.Skip("TestMutantsAreKilled tries each mutant by itself")
	}
	byPackage := everyday(t)
	for _, pkg := range slices.Sorted(maps.Keys(byPackage)) {
		t.Run(strings.TrimPrefix(pkg, "./"), func(t *testing.T) {
			t.Parallel() // many fail by a wait that ends in vain
			group := byPackage[pkg]
			patterns := make([]string, len(group))
			for i := range group {
				patterns[i] = group[i].Run
			}
			failed, said := run(t, pkg, strings.Join(patterns, "|"), overlay(t, group...))
			noticed := make(map[string]bool)
			for _, test := range failed {
				var by []string
				for i := range group {
					if group[i].selects(test) {
						by = append(by, group[i].Name)
					}
				}
				if len(by) == 1 {
					noticed[by[0]] = true
				}
			}
			for i := range group {
				require.True(t, noticed[group[i].Name], "%q survives: no test of its own fails. %s", group[i].Name, said)
			}
		})
	}
}

func TestSelects(t *testing.T) {
	t.Parallel()
	m := mutant{Run: "TestA/one$|TestB"}
	for test, is := range map[string]bool{
		"TestA": false, "TestA/one": true, "TestA/one/more": true, "TestA/one_more": false, "TestA/two": false, "TestB": true, "TestB/x": true, "TestC": false,
	} {
		require.Equal(t, is, m.selects(test), test)
	}
}

func TestParse_RefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	const header, diff = "Mutant: m\nTest: ./p -run T\n\n", "--- a/f\n+++ b/f\n@@\n a\n-b\n+c\n"
	m, err := parse(header + diff)
	require.NoError(t, err)
	require.Equal(t, mutant{Name: "m", Package: "./p", Run: "T", Edits: []mutants.Edit{{File: "f", Old: "a\nb\n", New: "a\nc\n"}}}, m)
	for _, bad := range []string{"", header, "Mutant: m\n\n" + diff, "Test: ./p\n\n" + diff, "Why: x\n" + header + diff, header + "-b\n", header + diff + "x\n"} {
		_, err := parse(bad)
		require.Error(t, err, bad)
	}
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "f"), []byte("a\nb\na\nb\n"), 0o600))
	_, err = mutants.Overlay(folder, t.TempDir(), m.Edits)
	require.ErrorContains(t, err, "2 times")
	_, err = mutants.Overlay(folder, t.TempDir(), []mutants.Edit{{File: "f", Old: "z", New: "y"}})
	require.ErrorContains(t, err, "0 times")
}
