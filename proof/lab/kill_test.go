package lab

import (
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
func contestOf(t *testing.T, name string, dieAt Step) (*contest, Env) {
	t.Helper()
	entry, ok := StrategyNamed(name)
	require.True(t, ok)
	entry.DieAt = dieAt
	place := Place{RedisURL: testenv.SharedRedis(t).URL(), MySQLDSN: testenv.Database(t).DSN}
	env, closeAll, err := openEnv(place, 2, 2)
	require.NoError(t, err)
	t.Cleanup(closeAll)
	env.Campaign = Campaign{ID: testenv.UniqueID(t, "lab"), Units: 10, PerUser: 1}
	env.Patience = time.Second
	s, err := entry.New(env)
	require.NoError(t, err)
	require.NoError(t, s.Prepare(t.Context()))
	require.NoError(t, s.Close())
	w := Workload{Connections: 2, Processes: 1, SQLPool: 2}.WithDefaults()
	r := &runner{opts: Options{Self: binary(t)}, w: w}
	return &contest{runner: r, entry: entry, env: env, name: env.Campaign.ID}, env
}

// One that was to die and came through is no measurement of what the dead leave: the lab says so.
func TestAClaimerThatComesThroughIsNoDeadOne(t *testing.T) {
	t.Parallel()
	c, env := contestOf(t, "set-nx-px", "no such step")
	require.ErrorIs(t, c.killOne(t.Context(), env), ErrAlive)
}

func TestADeadHolderWedgesWhoComesAfter(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"setnx-defer": true, "set-nx-px": true, "read-then-write": false, "for-update": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entry, _ := StrategyNamed(name)
			c, env := contestOf(t, name, entry.DieAt)
			require.NoError(t, c.killOne(t.Context(), env))
			wedged, err := c.wedged(t.Context(), env)
			require.NoError(t, err)
			require.Equal(t, want, wedged)
			lock, err := lockLeft(t.Context(), env)
			require.NoError(t, err)
			require.Equal(t, want, lock.Left == 1)
		})
	}
}

// A worker is given its share of the crowd and of MySQL's connections, and the lock's rules.
func TestAWorkerIsToldItsShare(t *testing.T) {
	t.Parallel()
	c := &contest{runner: &runner{w: Workload{Connections: 5, Processes: 2, SQLPool: 3, Patience: 7, RetryPause: 8}}, entry: Entry{Name: "watch"}}
	env := Env{Place: Place{RedisURL: "r"}, Campaign: Campaign{ID: "c"}}
	require.Equal(t, opening{
		Place: env.Place, Strategy: "watch", Campaign: env.Campaign, Share: 0, Of: 2, Claimers: 3, SQLPool: 2, Patience: 7, Retry: 8,
	}, c.opening(env, 0))
	second := c.opening(env, 1)
	require.Equal(t, []int{1, 2, 2, 1}, []int{second.Share, second.Of, second.Claimers, second.SQLPool})
}

// A worker that opens a second campaign lets go of the first.
func TestAWorkerWorksForOneCampaignAtATime(t *testing.T) {
	t.Parallel()
	_, env := contestOf(t, "read-then-write", "")
	w := &worker{close: func() {}}
	o := opening{Place: env.Place, Strategy: "read-then-write", Campaign: env.Campaign, Of: 1, Claimers: 1, SQLPool: 1, Patience: time.Second}
	require.NoError(t, w.open(o))
	first := w.strategy
	require.NoError(t, w.open(o))
	require.NotSame(t, first, w.strategy)
	_, err := first.Claim(t.Context(), "ada")
	require.ErrorContains(t, err, "closed")
	outcome, err := w.strategy.Claim(t.Context(), "ada")
	require.NoError(t, err)
	require.Equal(t, Claimed, outcome)
	o.Strategy = "luck"
	require.ErrorIs(t, w.open(o), ErrConfig)
	require.Nil(t, w.strategy, "and has none when it can't be had")
	w.close()
	require.NoError(t, dieAt(StepRead)(StepLocked), "another step is no one's end")
}
