package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// The test acts as the user: the debugger must stop at the first line, show
// keys and arguments, and continue to the reply of a successful call.
func TestEveryScriptRunsInTheDebugger(t *testing.T) {
	t.Chdir("../..")
	names, err := scriptNames(".")
	require.NoError(t, err)
	require.ElementsMatch(t, names, slices.Collect(maps.Keys(verbs)), "each script has its call")
	t.Setenv("TMPDIR", t.TempDir()) // other programs use the usual one
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			require.NoError(t, run(t.Context(), []string{name}, strings.NewReader("print KEYS\ncontinue\nquit\n"), &out, &errs), "%s", &errs)
			said := out.String()
			require.Contains(t, said, "Lua debugging session started", said)
			require.Contains(t, said, "* Stopped at", said)
			require.Contains(t, said, `"dibs:{p0}:`, "KEYS are shown: %s", said)
			_, reply, found := strings.Cut(said, "1) (integer) ")
			require.True(t, found, "a reply: %s", said)
			require.Equal(t, "0", strings.Fields(reply)[0], "it went well: %s", said)
			require.Contains(t, errs.String(), name+": ")
		})
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "dibs-program-*"))
	require.NoError(t, err)
	require.Empty(t, left, "nothing is left behind")
}

func TestWhatCantBeDebuggedIsRefused(t *testing.T) {
	t.Chdir("../..")
	for _, args := range [][]string{nil, {"claims"}, {"claim", "load"}, {"../lua/claim"}} {
		err := run(t.Context(), args, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
		require.ErrorIs(t, err, errUsage)
		require.ErrorContains(t, err, "adjust|claim|")
	}
	t.Chdir(t.TempDir())
	require.ErrorContains(t, run(t.Context(), []string{"claim"}, nil, nil, nil), "root of the module")
}
