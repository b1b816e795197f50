package testenv

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
)

// control starts, stops and pauses a test's server.
type control struct {
	t      testing.TB
	srv    *machine.Server
	shared bool // with other tests, which must not be disturbed
}

// Kill ends the server like a crash (SIGKILL). Its folder stays.
func (c *control) Kill() {
	c.t.Helper()
	c.requireOwn()
	require.NoError(c.t, c.srv.Stop(syscall.SIGKILL))
}

// Stop ends the server cleanly (SIGTERM). Its folder stays.
func (c *control) Stop() {
	c.t.Helper()
	c.requireOwn()
	require.NoError(c.t, c.srv.Stop(syscall.SIGTERM))
}

// Start restarts a killed or stopped server on the same folder
// and port. It returns once the data is loaded.
func (c *control) Start() { c.t.Helper(); require.NoError(c.t, c.srv.Start()) }

// Pause freezes the server (SIGSTOP): connections stay open without replies.
func (c *control) Pause() {
	c.t.Helper()
	c.requireOwn()
	require.NoError(c.t, c.srv.Signal(syscall.SIGSTOP))
}

// Resume continues a paused server.
func (c *control) Resume() { c.t.Helper(); require.NoError(c.t, c.srv.Signal(syscall.SIGCONT)) }

// Ended reports whether the server ended by itself. Call Kill,
// then Start, to restart it.
func (c *control) Ended() bool { return c.srv.HasEnded() }

func (c *control) requireOwn() {
	c.t.Helper()
	require.False(c.t, c.shared, "this Redis is shared by all tests: use testenv.Redis for one to kill or pause")
}

// closeChecked closes a server at the end of a test and fails
// the test if it doesn't end.
func closeChecked(t testing.TB, closeAll func() error) {
	t.Helper()
	if err := closeAll(); err != nil {
		t.Errorf("%v", err)
	}
}
