package claimed

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/singleflight"

	"dibs/api/workers"
)

// refresher shares a refresh among all callers that wait for one. A caller
// that comes while a refresh runs gets the next one: the running one may
// have read already what has changed since.
type refresher[T any] struct {
	refresh func() (T, error)
	group   *workers.Group
	flights singleflight.Group // of the refresh that has not started
	running sync.WaitGroup     // of the one that has
}

var errStopping = errors.New("claimed: the service is stopping")

// get returns the result of a refresh that started after the call.
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
