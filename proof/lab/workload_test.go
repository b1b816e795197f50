package lab_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/proof/lab"
)

func TestNumbersOfAWorkloadEndAtTheirBounds(t *testing.T) {
	t.Parallel()
	for flag, one := range map[string]struct {
		set         func(*lab.Workload, int)
		least, most int
	}{
		"--users":       {func(w *lab.Workload, n int) { w.Users, w.Units = n, 1 }, 1, 1_000_000},
		"--units":       {func(w *lab.Workload, n int) { w.Units, w.Users = int64(n), 1_000_000 }, 1, 1_000_000},
		"--per-user":    {func(w *lab.Workload, n int) { w.PerUser, w.Strategies = int64(n), []string{"watch"} }, 1, 1_000_000},
		"--processes":   {func(w *lab.Workload, n int) { w.Processes, w.Connections, w.SQLPool = n, 100, 100 }, 1, 64},
		"--connections": {func(w *lab.Workload, n int) { w.Connections = n }, 2, 2_000},
		"--sql-pool":    {func(w *lab.Workload, n int) { w.SQLPool = n }, 2, 2_000},
		"--rounds":      {func(w *lab.Workload, n int) { w.Rounds = n }, 1, 100},
	} {
		for _, n := range []int{one.least, one.most} {
			w := lab.Workload{}.WithDefaults()
			one.set(&w, n)
			require.NoError(t, w.Validate(), "%s %d", flag, n)
		}
		for _, n := range []int{one.least - 1, one.most + 1, -1} {
			w := lab.Workload{}.WithDefaults()
			one.set(&w, n)
			require.ErrorIs(t, w.Validate(), lab.ErrConfig)
			require.ErrorContains(t, w.Validate(), flag, n)
		}
	}
}

func TestTimesOfAWorkloadEndAtTheirBounds(t *testing.T) {
	t.Parallel()
	for flag, field := range map[string]func(*lab.Workload) *time.Duration{
		"--duration":    func(w *lab.Workload) *time.Duration { return &w.Duration },
		"--warm-up":     func(w *lab.Workload) *time.Duration { return &w.WarmUp },
		"--patience":    func(w *lab.Workload) *time.Duration { return &w.Patience },
		"--retry-pause": func(w *lab.Workload) *time.Duration { return &w.RetryPause },
	} {
		for d, ok := range map[time.Duration]bool{
			time.Millisecond: true, 10 * time.Minute: true, time.Millisecond - 1: false, 10*time.Minute + 1: false, 0: false, -time.Second: false,
		} {
			w := lab.Workload{}.WithDefaults()
			*field(&w) = d
			require.Equal(t, ok, w.Validate() == nil, "%s %s", flag, d)
			if !ok {
				require.ErrorContains(t, w.Validate(), flag)
			}
		}
	}
}

func TestACrowdMustBeAbleToBuyEverything(t *testing.T) {
	t.Parallel()
	w := lab.Workload{Users: 10, PerUser: 3, Units: 30, Strategies: []string{"watch"}}.WithDefaults()
	require.NoError(t, w.Validate())
	w.Units = 31
	require.ErrorContains(t, w.Validate(), "10 users of 3 each cannot buy 31 units")
	w = lab.Workload{PerUser: 2, Strategies: []string{"watch", "red-packet"}}.WithDefaults()
	require.ErrorContains(t, w.Validate(), "red-packet")
	w.Strategies = []string{"watch"}
	require.NoError(t, w.Validate())
	w.Strategies = []string{"watch", ""}
	require.ErrorContains(t, w.Validate(), "there are read-then-write, mutex,", "it says what there is")
}

func TestWhatIsSetIsNoDefault(t *testing.T) {
	t.Parallel()
	set := lab.Workload{
		Strategies: []string{"watch"}, Users: 1, Units: 2, PerUser: 3, Connections: 4, Processes: 5, SQLPool: 6, Rounds: 7,
		WarmUp: 8, Duration: 9, Patience: 10, RetryPause: 11,
	}
	require.Equal(t, set, set.WithDefaults())
	var none lab.Workload
	all := none.WithDefaults()
	require.Len(t, all.Strategies, len(lab.Strategies()))
	require.Zero(t, none, "WithDefaults returns a copy")
	require.NoError(t, all.Validate())
}

// What processes share is all of it, and no one has more than one more than another.
func TestSharesAddUpAndAreEven(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 64).Draw(rt, "processes")
		whole := rapid.IntRange(n, 2_000).Draw(rt, "connections")
		sum, least, most := 0, whole, 0
		for i := range n {
			one := lab.Share(whole, i, n)
			sum, least, most = sum+one, min(least, one), max(most, one)
		}
		require.Equal(rt, whole, sum)
		require.LessOrEqual(rt, most-least, 1)
		require.Positive(rt, least)
	})
}

func TestTheLadderHasAPlaceForEveryStrategy(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, entry := range lab.Strategies() {
		require.False(t, seen[entry.Name], "%s twice", entry.Name)
		seen[entry.Name] = true
		require.Regexp(t, `^[a-z]+(-[a-z]+)*$`, entry.Name)
		require.NotEmpty(t, entry.Title, entry.Name)
		require.NotEmpty(t, entry.Flaw, entry.Name)
		require.NotNil(t, entry.New, entry.Name)
		require.Contains(t, []lab.Step{lab.StepLocked, lab.StepRead, lab.StepWritten}, entry.DieAt, entry.Name)
		found, ok := lab.StrategyNamed(entry.Name)
		require.True(t, ok)
		require.Equal(t, entry.Title, found.Title)
	}
	_, ok := lab.StrategyNamed("luck")
	require.False(t, ok)
	require.Len(t, seen, 19)
}

func TestOutcomesHaveNames(t *testing.T) {
	t.Parallel()
	for outcome, name := range map[lab.Outcome]string{
		lab.Claimed: "claimed", lab.SoldOut: "sold_out", lab.OverLimit: "over_limit", lab.Busy: "busy", 0: "outcome 0", 5: "outcome 5", -1: "outcome -1",
	} {
		require.Equal(t, name, outcome.String())
	}
}
