package claimed

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/singleflight"

	"dibs/api/workers"
)

// refresher shares a refresh among its waiting callers. A caller during a
// refresh gets the next one: the running one may have read older data.
type refresher[T any] struct {
	refresh func() (T, error)
	group   *workers.Group
	flights singleflight.Group // of the next refresh
	running sync.WaitGroup     // the current refresh
}

var errStopping = errors.New("claimed: the service is stopping")

// get returns the result of a refresh that starts after the call.
func (r *refresher[T]) get(ctx context.Context) (value T, err error) {
	refreshed := make(chan singleflight.Result, 1)
	started := r.group.Go(func() {
		value, err, _ := r.flights.Do("", func() (any, error) {
			r.running.Wait()
			r.running.Add(1)
			defer r.running.Done()
			r.flights.Forget("")
			return r.refresh()
		})
		refreshed <- singleflight.Result{Val: value, Err: err}
	})
	if !started {
		return value, errStopping
	}
	select {
	case got := <-refreshed:
		value, _ = got.Val.(T)
		return value, got.Err
	case <-ctx.Done():
		return value, fmt.Errorf("claimed: waiting for a refresh: %w", ctx.Err())
	}
}
