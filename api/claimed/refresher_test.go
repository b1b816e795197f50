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
		gate, fail, ran := make(chan struct{}), true, 0
		r := refresher[int]{group: &workers.Group{}, refresh: func() (int, error) {
			<-gate
			ran++
			if fail {
				return 0, broken
			}
			return ran, nil
		}}
		var g sync.WaitGroup
		for range 5 {
			g.Go(func() {
				_, err := r.get(t.Context())
				if !errors.Is(err, broken) {
					t.Errorf("%v", err)
				}
			})
		}
		synctest.Wait()
		gate <- struct{}{}
		synctest.Wait()
		select {
		case gate <- struct{}{}: // for callers that came after the first refresh started
		default:
		}
		g.Wait()
		fail = false
		before := ran
		close(gate)
		got, err := r.get(t.Context())
		require.NoError(t, err)
		require.Equal(t, before+1, got)
		require.NoError(t, r.group.Stop(t.Context()))
	})
}

func TestRefresher_WhoLeavesLeavesTheOthersTheirRefresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := refresher[int]{group: &workers.Group{}, refresh: func() (int, error) { <-gate; return 7, nil }}
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := r.get(ctx)
			left <- err
		}()
		synctest.Wait()
		leave()
		require.ErrorIs(t, <-left, context.Canceled)
		close(gate)
		got, err := r.get(t.Context())
		require.NoError(t, err)
		require.Equal(t, 7, got)
		require.NoError(t, r.group.Stop(t.Context()))
	})
}

func TestRefresher_AStopWaitsForTheRefreshAndStartsNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := refresher[int]{group: &workers.Group{}, refresh: func() (int, error) { <-gate; return 7, nil }}
		var got int
		var g sync.WaitGroup
		g.Go(func() { got, _ = r.get(t.Context()) })
		synctest.Wait()
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
