package testenv

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// control starts, stops and pauses a test's server.
type control struct {
	t      testing.TB
	srv    *server
	shared bool // with other tests, which must not be disturbed
}

// Kill ends the server like a crash (SIGKILL). Its folder stays.
func (c *control) Kill() {
	c.t.Helper()
	c.requireOwn()
	require.NoError(c.t, c.srv.stop(syscall.SIGKILL))
}

// Stop ends the server cleanly (SIGTERM). Its folder stays.
func (c *control) Stop() {
	c.t.Helper()
	c.requireOwn()
	require.NoError(c.t, c.srv.stop(syscall.SIGTERM))
}

// Start restarts a killed or stopped server on the same folder
// and port. It returns once the data is loaded.
func (c *control) Start() { c.t.Helper(); require.NoError(c.t, c.srv.start()) }

// Pause freezes the server (SIGSTOP): connections stay open without replies.
func (c *control) Pause() {
	c.t.Helper()
	c.requireOwn()
	require.NoError(c.t, c.srv.signal(syscall.SIGSTOP))
}

// Resume continues a paused server.
func (c *control) Resume() { c.t.Helper(); require.NoError(c.t, c.srv.signal(syscall.SIGCONT)) }

// Ended reports whether the server ended by itself. Call Kill,
// then Start, to restart it.
func (c *control) Ended() bool { return c.srv.hasEnded() }

func (c *control) requireOwn() {
	c.t.Helper()
	require.False(c.t, c.shared, "this Redis is shared by all tests: use testenv.Redis for one to kill or pause")
}
