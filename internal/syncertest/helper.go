package syncertest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// RunIfHelper runs the body of a helper process, a copy of the test binary, when the environment says that this process is one. It
// does not return then.
func RunIfHelper(variable string, run func() error) {
	if os.Getenv(variable) == "" {
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// DieHere ends this process as a crash would.
func DieHere() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}

// RunHelper runs this test binary as a helper to its end. It returns what the helper printed, and whether it was killed.
func RunHelper(t testing.TB, env ...string) (printed string, killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this very program
	cmd.Env = append(os.Environ(), env...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		require.Equal(t, "signal: killed", err.Error(), errs.String())
		return out.String(), true
	}
	return out.String(), false
}
