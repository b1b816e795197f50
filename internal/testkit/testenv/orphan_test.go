package testenv_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
)

// orphanMaker makes a rerun of this test binary start servers,
// print their addresses and wait to be killed.
const orphanMaker = "DIBS_TESTENV_MAKE_ORPHANS"

func TestServersDieWithAKilledTestBinary(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMakeOrphans$")
	cmd.Env = append(os.Environ(), orphanMaker+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var addrs []string
	for lines := bufio.NewScanner(out); len(addrs) < 2 && lines.Scan(); {
		if _, addr, ok := strings.Cut(lines.Text(), "orphan at "); ok {
			require.True(t, listens(t, addr), "control: %s runs while its test binary does", addr)
			addrs = append(addrs, addr)
		}
	}
	require.Len(t, addrs, 2)

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	for _, addr := range addrs {
		require.Eventually(t, func() bool { return !listens(t, addr) }, time.Minute, 10*time.Millisecond, addr)
	}
}

// TestMakeOrphans runs only as a child of
// TestServersDieWithAKilledTestBinary.
func TestMakeOrphans(t *testing.T) { //nolint:paralleltest // runs alone, in a process of its own
	if os.Getenv(orphanMaker) == "" {
		return
	}
	_, _ = fmt.Fprintf(os.Stdout, "orphan at %s\n", testenv.Redis(t).Addr())
	_, _ = fmt.Fprintf(os.Stdout, "orphan at %s\n", testenv.SQLServer(t).Addr())
	<-t.Context().Done()
}

func listens(t *testing.T, addr string) bool {
	t.Helper()
	dialer := net.Dialer{Timeout: time.Second}
	c, err := dialer.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

func TestPausedRedisEndsWithItsTest(t *testing.T) {
	t.Parallel()
	var c *redis.Client
	t.Run("paused at the end", func(t *testing.T) {
		r := testenv.Redis(t)
		c = redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1})
		require.NoError(t, c.Ping(t.Context()).Err())
		r.Pause()
	})
	require.Error(t, c.Ping(t.Context()).Err())
	require.NoError(t, c.Close())
}
