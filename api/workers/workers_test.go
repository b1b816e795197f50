package workers_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api/workers"
)

func TestGroup_StopWaitsForWhatRunsAndStartsNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g workers.Group
		var done atomic.Bool
		require.True(t, g.Go(func() {
			time.Sleep(time.Minute) //nolint:forbidigo // of the bubble's clock
			done.Store(true)
		}))
		started := time.Now()
		require.NoError(t, g.Stop(t.Context()))
		require.True(t, done.Load())
		require.Equal(t, time.Minute, time.Since(started))
		require.False(t, g.Go(func() { t.Error("it ran") }))
		require.NoError(t, g.Stop(t.Context()), "again")
	})
}

func TestGroup_StopGivesUpAndMayBeAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g workers.Group
		end := make(chan struct{})
		g.Go(func() { <-end })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := g.Stop(ctx)
		require.ErrorIs(t, err, workers.ErrStop)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, g.Go(func() { t.Error("it ran") }))
		close(end)
		require.NoError(t, g.Stop(t.Context()))
	})
}

// Nothing may still run when Stop returns, however starts and the stop race.
func TestGroup_NothingRunsAfterStop(t *testing.T) {
	t.Parallel()
	for range 200 {
		var g workers.Group
		var running, started atomic.Int64
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for g.Go(func() { running.Add(1); running.Add(-1); started.Add(1) }) {
				}
			})
		}
		require.NoError(t, g.Stop(t.Context()))
		require.Zero(t, running.Load())
		ran := started.Load()
		callers.Wait()
		require.Equal(t, ran, started.Load())
	}
}
