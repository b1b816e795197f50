package lab_test

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"dibs/cmd"
	"dibs/cmd/trials"
	"dibs/internal/testenv"
	"dibs/lab"
)

// TestMain is also the program itself, for the processes that the lab starts: workers and `dibs serve`.
func TestMain(m *testing.M) {
	redis.SetLogger(noWords{})
	if len(os.Args) > 1 && (os.Args[1] == lab.WorkerCommand || os.Args[1] == "serve") {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := trials.Run(ctx, cmd.Env{Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr})
		stop()
		os.Exit(code)
	}
	testenv.Main(m)
}

// noWords is for a client that would tell of every server that a test takes away.
type noWords struct{}

func (noWords) Printf(context.Context, string, ...any) {}

// self starts this test binary as the program.
func self(args ...string) *exec.Cmd {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return exec.Command(path, args...)
}
