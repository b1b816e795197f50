package cmd

import (
	"context"
	"os"
	"os/signal"
	"testing"

	"dibs/internal/testenv"
)

// TestMain is also the program itself, for the service that `dibs bench` starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		code := Run(ctx, Env{Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr})
		stop()
		os.Exit(code)
	}
	testenv.Main(m)
}
