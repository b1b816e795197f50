package cmd

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // a DSN may have loc=; the image has no zones

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9/logging"
)

// Main is a program: it runs until its command ends, or SIGINT or SIGTERM do
// it, and never returns.
func Main(run func(context.Context, Env) int) {
	Tune()
	// what drivers would print to stderr, unstructured, comes back to us as an
	// error
	logging.Disable()
	_ = mysql.SetLogger(&mysql.NopLogger{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, Env{Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr})
	stop()
	os.Exit(code)
}
