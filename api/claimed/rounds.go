package claimed

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"dibs/api/workers"
)

// rounds shares a piece of work among all who ask for it. Who asks while a round runs gets the next one: the one that runs
// may have looked already where something new has come since.
type rounds[T any] struct {
	work func() (T, error)
	crew *workers.Workers

	mu      sync.Mutex
	next    *round[T]
	running bool
}

var errRoundsOver = errors.New("api: the service is stopping")

// round is one go; result and err are there when done is closed.
type round[T any] struct {
	done   chan struct{}
	result T
	err    error
}

// ask returns what a round brought that began after the call did.
func (r *rounds[T]) ask(ctx context.Context) (T, error) {
	mine, err := r.join()
	if err == nil {
		select {
		case <-mine.done:
			return mine.result, mine.err
		case <-ctx.Done():
			err = fmt.Errorf("api: waiting for a round: %w", ctx.Err())
		}
	}
	var none T
	return none, err
}

func (r *rounds[T]) join() (*round[T], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		if !r.running && !r.crew.Enter() {
			return nil, errRoundsOver
		}
		r.next = &round[T]{done: make(chan struct{})}
		if !r.running {
			r.running = true
			go r.run()
		}
	}
	return r.next, nil
}

// run works, on nobody's time, until nobody asks any more.
func (r *rounds[T]) run() {
	defer r.crew.Leave()
	for {
		r.mu.Lock()
		mine := r.next
		r.next = nil
		if mine == nil {
			r.running = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		mine.result, mine.err = r.work()
		close(mine.done)
	}
}
