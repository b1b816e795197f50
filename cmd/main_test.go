package cmd

import (
	"context"
	"io"
	"log" //nolint:depguard // what go-sql-driver takes
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"dibs/internal/testenv"
)

// TestMain is also the program itself, for the services that commands start.
func TestMain(m *testing.M) {
	redis.SetLogger(noWords{})
	_ = mysql.SetLogger(log.New(io.Discard, "", 0))
	if len(os.Args) > 1 && os.Args[1] == "serve" {
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
