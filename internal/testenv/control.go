package testenv

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// control is what a test may do to a server of its own.
type control struct {
	t      testing.TB
	srv    *server
	shared bool // with other tests, which none of them may disturb
}

// Kill ends the server as a crash would (SIGKILL). Its folder stays.
func (c *control) Kill() {
	c.t.Helper()
	c.requireOwn()
	require.NoError(c.t, c.srv.stop(syscall.SIGKILL))
}

// Stop ends the server in an orderly way (SIGTERM). Its folder stays.
func (c *control) Stop() {
	c.t.Helper()
	c.requireOwn()
	require.NoError(c.t, c.srv.stop(syscall.SIGTERM))
}

// Start starts a killed or stopped server again, on the same folder and port,
// and returns when it has loaded its data.
func (c *control) Start() { c.t.Helper(); require.NoError(c.t, c.srv.start()) }

// Pause freezes the server (SIGSTOP): connections stay open and nothing
// answers.
func (c *control) Pause() {
	c.t.Helper()
	c.requireOwn()
	require.NoError(c.t, c.srv.signal(syscall.SIGSTOP))
}

// Resume lets a paused server go on.
func (c *control) Resume() { c.t.Helper(); require.NoError(c.t, c.srv.signal(syscall.SIGCONT)) }

// Ended reports whether the server ended by itself. Kill, and then Start,
// starts it again.
func (c *control) Ended() bool { return c.srv.hasEnded() }

func (c *control) requireOwn() {
	c.t.Helper()
	require.False(c.t, c.shared, "this Redis is shared by all tests: use testenv.Redis for one to kill or pause")
}
