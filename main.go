// Dibs hands out a limited number of things to a crowd that all arrives at once: first come, first served, never one too
// many, and the books agree afterwards. See `go run . help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // campaigns have time zones; the image has none

	"dibs/cmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cmd.Run(ctx, cmd.Env{Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr})
	stop()
	os.Exit(code)
}
