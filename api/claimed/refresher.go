package claimed

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"dibs/api/workers"
)

// refresher shares a refresh among all callers that wait for one. A caller that comes while a refresh runs gets the next one: the
// running one may have read already what has changed since.
type refresher[T any] struct {
	refresh func() (T, error)
	group   *workers.Group

	mu      sync.Mutex
	next    *refreshed[T]
	running bool
}

// refreshed is the result of a refresh, once done is closed.
type refreshed[T any] struct {
	done  chan struct{}
	value T
	err   error
}

var errStopping = errors.New("claimed: the service is stopping")

// get returns the result of a refresh that started after the call.
func (r *refresher[T]) get(ctx context.Context) (value T, err error) {
	next, err := r.join()
	if err != nil {
		return value, err
	}
	select {
	case <-next.done:
		return next.value, next.err
	case <-ctx.Done():
		return value, fmt.Errorf("claimed: waiting for a refresh: %w", ctx.Err())
	}
}

func (r *refresher[T]) join() (*refreshed[T], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.running {
		r.running = r.group.Go(r.run)
		if !r.running {
			return nil, errStopping
		}
	}
	if r.next == nil {
		r.next = &refreshed[T]{done: make(chan struct{})}
	}
	return r.next, nil
}

// run refreshes until no caller waits.
func (r *refresher[T]) run() {
	for {
		r.mu.Lock()
		next := r.next
		r.next = nil
		r.running = next != nil
		r.mu.Unlock()
		if next == nil {
			return
		}
		next.value, next.err = r.refresh()
		close(next.done)
	}
}
