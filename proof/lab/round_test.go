package lab

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
)

// binary is this test binary, which is also the worker.
func binary(t *testing.T) Self {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return func(args ...string) *exec.Cmd { return exec.Command(path, args...) }
}

// contestOf is a contest of one strategy over its own prepared campaign.
func contestOf(t *testing.T, name string) (*contest, Env) {
	t.Helper()
	entry, ok := StrategyNamed(name)
	require.True(t, ok)
	servers := Servers{RedisURL: testenv.SharedRedis(t).URL(), MySQLDSN: testenv.Database(t).DSN}
	terms := Terms{
		Campaign: Campaign{ID: testenv.UniqueID(t, "lab"), Units: 10}, Connections: 2, Patience: time.Second,
		RetryPause: 10 * time.Millisecond, Lease: DefaultLease,
	}
	env, closeAll, err := openEnv(servers, terms, 2)
	require.NoError(t, err)
	t.Cleanup(closeAll)
	s, err := entry.New(env)
	require.NoError(t, err)
	require.NoError(t, s.Prepare(t.Context()))
	require.NoError(t, s.Close())
	w := DefaultWorkload()
	w.Connections = 2
	w.Processes = 1
	w.SQLPool = 2
	return &contest{runner: &runner{opts: Options{Self: binary(t)}, w: w}, entry: entry, env: env, name: env.Campaign.ID}, env
}

// No worker may claim before the last has started.
func TestWorkersWaitForEachOther(t *testing.T) {
	t.Parallel()
	_, env := contestOf(t, "read-then-write")
	ctx, cancel := context.WithCancel(t.Context())
	alone := make(chan error, 1)
	go func() { alone <- awaitOthers(ctx, env, 3) }()
	require.Eventually(t, func() bool { return env.Redis.Get(t.Context(), env.key("ready")).Val() == "1" }, soon, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-alone, context.Canceled)
	second := make(chan error, 1)
	go func() { second <- awaitOthers(t.Context(), env, 3) }()
	require.NoError(t, awaitOthers(t.Context(), env, 3))
	require.NoError(t, <-second)
}
