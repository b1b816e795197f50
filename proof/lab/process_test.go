package lab

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// soon limits the wait for processes that should end at once.
const soon = time.Minute

func sh(script string) *exec.Cmd { return exec.Command("sh", "-c", script) }

func worker(t *testing.T, script string) Self {
	t.Helper()
	return func(args ...string) *exec.Cmd {
		require.Equal(t, []string{WorkerCommand}, args)
		return sh(script)
	}
}

func TestAWorkerThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := work(t.Context(), worker(t, `echo "out of luck" >&2; exit 3`), order{})
	require.ErrorIs(t, err, errWorker)
	require.ErrorContains(t, err, "out of luck")
	_, err = work(t.Context(), worker(t, `kill -9 $$`), order{})
	require.ErrorIs(t, err, errKilled)
	_, err = work(t.Context(), worker(t, `echo hello`), order{})
	require.ErrorContains(t, err, "invalid character")
	_, err = work(t.Context(), func(...string) *exec.Cmd { return exec.Command("/no/such/program") }, order{})
	require.ErrorContains(t, err, "/no/such/program")
}
