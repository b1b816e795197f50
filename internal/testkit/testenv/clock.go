package testenv

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
)

// errNoClock means that this machine can't give a program its own clock.
var errNoClock = errors.New("testenv: no server can have a clock of its own here; " +
	"it takes cc, and a Linux where the server is installed as a program")

//go:embed testdata/clock.c
var clockSource []byte

// Clock is the wall clock of servers started with it, by
// LD_PRELOAD. Their monotonic clock is the machine's.
type Clock struct {
	t            testing.TB
	library, off string
}

// NewClock builds the library that servers read their clock
// through. It returns an error where the machine can't.
func NewClock(t testing.TB) (*Clock, error) {
	t.Helper()
	folder, remove, err := machine.Folder("clock")
	if err != nil {
		return nil, err
	}
	t.Cleanup(remove)
	c := &Clock{t: t, library: filepath.Join(folder, "clock.so"), off: filepath.Join(folder, "off")}
	source := filepath.Join(folder, "clock.c")
	if err := errors.Join(os.WriteFile(source, clockSource, 0o600), os.WriteFile(c.off, make([]byte, 8), 0o600)); err != nil {
		return nil, fmt.Errorf("testenv: a clock: %w", err)
	}
	build := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", c.library, source, "-ldl") //nolint:noctx // it ends by itself
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %w: %s", errNoClock, err, out)
	}
	return c, nil
}

// Redis is the function Redis, with this clock.
func (c *Clock) Redis(conf ...string) *RedisServer {
	c.t.Helper()
	return newRedis(c.t, "", conf, []string{"LD_PRELOAD=" + c.library, "DIBS_TEST_CLOCK=" + c.off})
}

// Set makes the clock differ by off; negative is behind.
func (c *Clock) Set(off time.Duration) {
	c.t.Helper()
	file, err := os.OpenFile(c.off, os.O_WRONLY, 0)
	require.NoError(c.t, err)
	us := uint64(off.Microseconds()) // two's complement, as C reads it
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, us), 0)
	require.NoError(c.t, errors.Join(err, file.Close()))
}
