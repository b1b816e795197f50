package cmd

import (
	"context"
	"io"
	"log" //nolint:depguard // what go-sql-driver takes
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"dibs/internal/testenv"
	"dibs/lab"
)

// TestMain is also the program itself, for the processes that commands start: a service, and the claimers of a lab.
func TestMain(m *testing.M) {
	redis.SetLogger(noWords{})
	_ = mysql.SetLogger(log.New(io.Discard, "", 0))
	if len(os.Args) > 1 && slices.Contains([]string{"serve", lab.WorkerCommand}, os.Args[1]) {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := Run(ctx, Env{Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr})
		stop()
		os.Exit(code)
	}
	testenv.Main(m)
}

// noWords is for drivers that would tell of every server that a test takes away.
type noWords struct{}

func (noWords) Printf(context.Context, string, ...any) {}
