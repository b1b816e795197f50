package lab_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/proof/lab"
)

func TestAWorkloadEndsAtItsBounds(t *testing.T) {
	t.Parallel()
	const milli, minutes = int(time.Millisecond), int(10 * time.Minute)
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
		"--duration":    {func(w *lab.Workload, n int) { w.Duration = time.Duration(n) }, milli, minutes},
		"--patience":    {func(w *lab.Workload, n int) { w.Patience = time.Duration(n) }, milli, minutes},
		"--retry-pause": {func(w *lab.Workload, n int) { w.RetryPause = time.Duration(n) }, milli, minutes},
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
	w := lab.DefaultWorkload()
	w.Users, w.Units = 10, 11
	require.ErrorContains(t, w.Validate(), "10 users cannot buy 11 units")
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
