package console_test

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"dibs/cmd"
	"dibs/internal/testkit/testenv"
)

// roleVariable makes this test binary run a role of Dibs, so that tests can
// freeze one.
const roleVariable = "CONSOLE_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := cmd.Run(ctx, cmd.Env{Args: []string{role}, Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr})
		stop()
		os.Exit(code)
	}
	testenv.Main(m)
}
