// Package servetest runs the whole service inside a test.
package servetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testkit/testenv"
)

// Migrate migrates a database.
func Migrate(t testing.TB, environ ...string) {
	t.Helper()
	said := &testenv.Buffer{}
	require.Zero(t, cmd.Run(t.Context(), cmd.Env{Args: []string{"migrate"}, Environ: environ, Stdout: said, Stderr: said}), said)
}

// Serve runs `dibs serve` with env's settings, on a free port by default, and
// returns its URL once it listens. stop or the test's end stops it.
func Serve(t testing.TB, env cmd.Env) (url string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	up := make(chan string, 1)
	ended := make(chan int, 1)
	said := &testenv.Buffer{}
	env.Args = []string{"serve"}
	env.Stdout = said
	env.Stderr = said
	env.Environ = slices.Concat([]string{"DIBS_HTTP_ADDR=127.0.0.1:0"}, env.Environ)
	env.Listening = func(addr string) { up <- addr }
	go func() { ended <- cmd.Run(ctx, env) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.Zero(t, <-ended, said)
	})
	t.Cleanup(stop)
	select {
	case addr := <-up:
		return "http://" + addr, stop
	case code := <-ended:
		ended <- code
		require.FailNow(t, "the service ended at once", said)
	case <-time.After(time.Minute):
		require.FailNow(t, "the service does not come up", said)
	}
	return "", stop
}
