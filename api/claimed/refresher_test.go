package claimed

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"dibs/api/workers"
)

func TestRefresher_AnErrorIsSharedAndNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		gate, fail := make(chan struct{}), broken
		r := refresher[int]{group: &workers.Group{}, refresh: func() (int, error) { <-gate; return 7, fail }}
		var errs [5]error
		var g sync.WaitGroup
		for i := range errs {
			g.Go(func() { _, errs[i] = r.get(t.Context()) })
		}
		synctest.Wait()
		close(gate)
		g.Wait()
		for _, err := range errs {
			require.ErrorIs(t, err, broken)
		}
		fail = nil
		got, err := r.get(t.Context())
		require.NoError(t, err)
		require.Equal(t, 7, got)
		require.NoError(t, r.group.Stop(t.Context()))
	})
}

// Who leaves must leave the others their refresh.
func TestRefresher_AStopWaitsForTheRefreshAndStartsNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := refresher[int]{group: &workers.Group{}, refresh: func() (int, error) { <-gate; return 7, nil }}
		var got int
		var g sync.WaitGroup
		ctx, leave := context.WithCancel(t.Context())
		var left error
		g.Go(func() { _, left = r.get(ctx) })
		synctest.Wait()
		g.Go(func() { got, _ = r.get(t.Context()) })
		leave()
		synctest.Wait()
		require.ErrorIs(t, left, context.Canceled)
		stopped := make(chan error, 1)
		go func() { stopped <- r.group.Stop(t.Context()) }()
		synctest.Wait()
		require.Empty(t, stopped, "a refresh runs")
		close(gate)
		g.Wait()
		require.Equal(t, 7, got)
		require.NoError(t, <-stopped)
		_, err := r.get(t.Context())
		require.ErrorIs(t, err, errStopping)
	})
}
