package bench_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
)

func buildDibs(b *testing.B) string {
	b.Helper()
	program := filepath.Join(b.TempDir(), "dibs")
	out, err := exec.CommandContext(b.Context(), "go", "build", "-o", program, "dibs").CombinedOutput()
	require.NoError(b, err, string(out))
	return program
}

// startDibs starts a role; it waits until an API listens. At the
// end it stops it like an operator.
func startDibs(b *testing.B, program, role string, settings ...string) *child {
	b.Helper()
	c, stop := runDibs(b, program, role, settings...)
	b.Cleanup(stop)
	return c
}

func runDibs(b *testing.B, program, role string, settings ...string) (c *child, stop func()) {
	b.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(b.Context()), program, role, "--log-format", "json")
	cmd.Env = append(testenv.Environ(), settings...)
	log, err := cmd.StderrPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	listening, ended := make(chan string, 1), make(chan string, 1)
	go readLog(log, listening, ended)
	stop = func() {
		require.NoError(b, cmd.Process.Signal(syscall.SIGTERM))
		last := <-ended
		require.NoError(b, cmd.Wait(), last)
	}
	c = &child{pid: cmd.Process.Pid}
	if role != "api" {
		return c, stop
	}
	select {
	case c.addr = <-listening:
	case <-time.After(childTimeout):
		b.Fatalf("dibs %s does not listen", role)
	}
	return c, stop
}

// readLog reads a log to its end. It reports the process's
// address, and finally the last line.
func readLog(log io.Reader, listening, ended chan<- string) {
	last := ""
	for lines := bufio.NewScanner(log); lines.Scan(); {
		last = lines.Text()
		var line struct {
			URL string `json:"url"`
		}
		if json.Unmarshal([]byte(last), &line) == nil && line.URL != "" {
			listening <- strings.TrimPrefix(line.URL, "http://")
		}
	}
	ended <- last
}
