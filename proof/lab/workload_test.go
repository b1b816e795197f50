package lab_test

import (
	"os"
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
		"--processes":   {func(w *lab.Workload, n int) { w.Processes, w.Connections, w.SQLPool = n, 100, 100 }, 1, 64},
		"--connections": {func(w *lab.Workload, n int) { w.Connections = n }, 2, 2_000},
		"--sql-pool":    {func(w *lab.Workload, n int) { w.SQLPool = n }, 2, 2_000},
		"--rounds":      {func(w *lab.Workload, n int) { w.Rounds = n }, 1, 100},
	} {
		for _, n := range []int{one.least, one.most} {
			w := lab.DefaultWorkload()
			one.set(&w, n)
			require.NoError(t, w.Validate(), "%s %d", flag, n)
		}
		for _, n := range []int{one.least - 1, one.most + 1, -1} {
			w := lab.DefaultWorkload()
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
		"--patience":    func(w *lab.Workload) *time.Duration { return &w.Patience },
		"--retry-pause": func(w *lab.Workload) *time.Duration { return &w.RetryPause },
	} {
		for d, ok := range map[time.Duration]bool{
			time.Millisecond: true, 10 * time.Minute: true, time.Millisecond - 1: false, 10*time.Minute + 1: false, 0: false, -time.Second: false,
		} {
			w := lab.DefaultWorkload()
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
	w := lab.DefaultWorkload()
	w.Users = 10
	w.Units = 10
	require.NoError(t, w.Validate())
	w.Units = 11
	require.ErrorContains(t, w.Validate(), "10 users cannot buy 11 units")
}

func TestAWorkloadHasTheStrategiesItNamesOrAll(t *testing.T) {
	t.Parallel()
	w := lab.DefaultWorkload()
	all, err := w.Entries()
	require.NoError(t, err)
	require.Len(t, all, len(lab.Strategies()))
	w.Strategies = []string{"watch", "mutex"}
	two, err := w.Entries()
	require.NoError(t, err)
	require.Equal(t, []string{"watch", "mutex"}, []string{two[0].Name, two[1].Name})
	w.Strategies = []string{"watch", "luck"}
	require.ErrorContains(t, w.Validate(), "luck")
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
	page, err := os.ReadFile("../../docs/lab.md")
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, entry := range lab.Strategies() {
		require.False(t, seen[entry.Name], "%s twice", entry.Name)
		seen[entry.Name] = true
		require.Regexp(t, `^[a-z]+(-[a-z]+)*$`, entry.Name)
		require.NotEmpty(t, entry.Title, entry.Name)
		require.NotEmpty(t, entry.Flaw, entry.Name)
		require.NotNil(t, entry.New, entry.Name)
		require.Contains(t, string(page), "** (`"+entry.Name+"`", "what it is and what it is enough for")
		require.Contains(t, []lab.Step{lab.StepLocked, lab.StepRead, lab.StepWritten}, entry.DieAt, entry.Name)
		found, ok := lab.StrategyNamed(entry.Name)
		require.True(t, ok)
		require.Equal(t, entry.Title, found.Title)
	}
	_, ok := lab.StrategyNamed("luck")
	require.False(t, ok)
	require.Len(t, seen, 20)
}
