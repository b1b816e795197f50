package trials_test

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testkit/testenv"
	"dibs/proof/lab"
	"dibs/proof/trials"
)

const within = time.Minute

// TestMain is also the program, for the lab's processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == lab.WorkerCommand || os.Args[1] == "serve") {
		cmd.Main(trials.Run)
	}
	testenv.Main(m)
}

type ended struct {
	code           int
	stdout, stderr string
}

func run(t *testing.T, environ []string, args ...string) ended {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var out, problems bytes.Buffer
	code := trials.Run(ctx, cmd.Env{Args: args, Environ: environ, Stdout: &out, Stderr: &problems})
	require.NoError(t, ctx.Err(), "%v does not end\n%s", args, &problems)
	return ended{code, out.String(), problems.String()}
}

func requireOK(t *testing.T, got ended) string {
	t.Helper()
	require.Equal(t, cmd.ExitOK, got.code, got.stdout+got.stderr)
	return got.stdout
}

// requireRefusal expects one line on stderr that contains all words.
func requireRefusal(t *testing.T, got ended, code int, words ...string) {
	t.Helper()
	require.Equal(t, code, got.code, got.stderr)
	require.Empty(t, got.stdout)
	require.Equal(t, 1, strings.Count(got.stderr, "\n"), "one line, not %q", got.stderr)
	for _, word := range words {
		require.Contains(t, got.stderr, word)
	}
}

// Every line of an example must be a valid command.
func TestTrialsExplainThemselves(t *testing.T) {
	t.Parallel()
	line := regexp.MustCompile(`(?m)^  dibs ([a-z].*?)(?:  +.*)?(?: > \S+)?$`)
	for _, name := range []string{"lab", "torture"} {
		out := requireOK(t, run(t, nil, name, "--help"))
		_, examples, found := strings.Cut(out, "Examples:\n")
		require.True(t, found, "no examples")
		given := line.FindAllStringSubmatch(strings.SplitN(examples, "\n\n", 2)[0], -1)
		require.NotEmpty(t, given)
		for _, example := range given {
			args := strings.Fields(strings.ReplaceAll(example[1], "'kill redis,cut a wire'", "x"))
			// flags are read before help is given
			requireOK(t, run(t, nil, append(args, "--help")...))
		}
	}
	require.Contains(t, requireOK(t, run(t, nil, "torture", "--list")), "kill redis")
	out := requireOK(t, run(t, nil, "help"))
	require.NotContains(t, out, "from a clone")
	require.NotContains(t, out, lab.WorkerCommand, "is for the lab alone")
}

// In a clone, the program without these commands must build the
// one that has them; elsewhere it must say where they are.
func TestDibsBuildsItsTrialsInAClone(t *testing.T) {
	t.Parallel()
	var out, problems bytes.Buffer
	code := cmd.Run(t.Context(), cmd.Env{Args: []string{"lab", "--list"}, Environ: testenv.Environ(), Stdout: &out, Stderr: &problems})
	require.Zero(t, code, problems.String())
	require.Contains(t, out.String(), lab.Strategies()[0].Flaw)
	out.Reset()
	code = cmd.Run(t.Context(), cmd.Env{Args: []string{"lab", "--rounds", "x"}, Environ: testenv.Environ(), Stdout: &out, Stderr: &problems})
	require.Equal(t, cmd.ExitUsage, code, "as it ended")
	require.Equal(t, 1, strings.Count(problems.String(), "dibs: "), "said once: %s", &problems)
}
