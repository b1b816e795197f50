package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// While Redis stalls, a process must still end within
// DIBS_SHUTDOWN_TIMEOUT, plus leeway for a busy machine.
func TestARedisThatHangsHoldsUpNoStop(t *testing.T) {
	t.Parallel()
	const timeout, leeway = 3 * time.Second, 2 * time.Second
	s := newServers(t, setup{})
	settings := map[string]string{"DIBS_REDIS_URL": s.redisURL, "DIBS_MYSQL_DSN": s.dsn, "DIBS_SHUTDOWN_TIMEOUT": timeout.String()}
	var roles []*process
	for _, role := range []string{"serve", "api", "consumer", "syncer", "finance"} {
		roles = append(roles, newProcess(t, role, settings))
	}
	s.redis.Pause()
	defer s.redis.Resume()
	// so that most processes wait for it; the result is the same if not
	<-time.After(time.Second)
	start := time.Now()
	for _, p := range roles {
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	}
	for _, p := range roles {
		p.awaitEnd()
		took := time.Since(start)
		t.Logf("dibs %s: %s", p.command, took)
		require.Less(t, took, timeout+leeway, p.tail())
		require.Zero(t, p.cmd.ProcessState.ExitCode(), p.tail())
	}
}
