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

// Main is a program: it runs until its command ends, or SIGINT or
// SIGTERM. It never returns.
func Main(run func(context.Context, Env) int) {
	Tune()
	// the drivers' own unstructured output on stderr; we get the same
	// as errors
	logging.Disable()
	_ = mysql.SetLogger(&mysql.NopLogger{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, Env{Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr})
	stop()
	os.Exit(code)
}
