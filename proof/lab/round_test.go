package lab

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

// binary is this test binary, which is the worker, too.
func binary(t *testing.T) Self {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return func(args ...string) *exec.Cmd { return exec.Command(path, args...) }
}

// contestOf is a contest of one strategy over a campaign of its own that is prepared.
func contestOf(t *testing.T, name string) (*contest, Env) {
	t.Helper()
	entry, ok := StrategyNamed(name)
	require.True(t, ok)
	place := Place{RedisURL: testenv.SharedRedis(t).URL(), MySQLDSN: testenv.Database(t).DSN}
	terms := Terms{
		Campaign: Campaign{ID: testenv.UniqueID(t, "lab"), Units: 10}, Connections: 2, Patience: time.Second,
		RetryPause: 10 * time.Millisecond, Lease: DefaultLease,
	}
	env, closeAll, err := openEnv(place, terms, 2)
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

// One that was to die and came through is no measurement of what the dead leave: the lab says so.
func TestAClaimerThatComesThroughIsNoDeadOne(t *testing.T) {
	t.Parallel()
	c, _ := contestOf(t, "set-nx-px")
	c.entry.DieAt = "no such step"
	require.ErrorIs(t, c.kill(t.Context(), new(Round)), errAlive)
}

func TestWhatADeadHolderLeavesIsReported(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"setnx-defer": "1, for ever", "set-nx-px": "1, for 30 s", "read-then-write": "0", "for-update": "0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := contestOf(t, name)
			var one Round
			require.NoError(t, c.kill(t.Context(), &one))
			require.Equal(t, want, one.lock)
		})
	}
}

// A worker is given its share of the crowd and of MySQL's connections, and the lock's rules.
func TestAWorkerIsToldItsShare(t *testing.T) {
	t.Parallel()
	c := &contest{runner: &runner{w: Workload{Connections: 5, Processes: 2, SQLPool: 3}}, entry: Entry{Name: "watch"}}
	env := Env{Place: Place{RedisURL: "r"}, Terms: Terms{Campaign: Campaign{ID: "c"}, Patience: 7, RetryPause: 8, Lease: 9}}
	orders := c.orders(env, order{For: time.Second})
	first := order{Place: env.Place, Terms: env.Terms, Strategy: "watch", Of: 2, SQLPool: 2, For: time.Second}
	first.Connections = 3
	require.Equal(t, first, orders[0])
	second := first
	second.Share = 1
	second.Connections = 2
	second.SQLPool = 1
	require.Equal(t, second, orders[1])
}

func TestDeathComesAtItsStepAlone(t *testing.T) {
	t.Parallel()
	require.NoError(t, dieAt(StepRead)(StepLocked))
}

// Workers begin together: none claims before the last has come.
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
