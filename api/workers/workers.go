package workers

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrStop says that work was left over when the time to stop was up.
var ErrStop = errors.New("api: did not stop in time")

// crew counts the workers of all combiners, so that a stop can wait for the last.
type Workers struct {
	mu      sync.Mutex
	workers int
	over    bool
	empty   chan struct{} // closed when over and without workers
}

func New() *Workers { return &Workers{empty: make(chan struct{})} }

// enter admits a worker; false when it is over.
func (c *Workers) Enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.workers++
	return true
}

func (c *Workers) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.workers--; c.workers == 0 && c.over {
		close(c.empty)
	}
}

func (c *Workers) Closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// stop admits nobody any more and waits for those at work. It may be called again.
func (c *Workers) Stop(ctx context.Context) error {
	c.mu.Lock()
	if !c.over {
		c.over = true
		if c.workers == 0 {
			close(c.empty)
		}
	}
	c.mu.Unlock()
	select {
	case <-c.empty:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: script calls are still in flight: %w", ErrStop, ctx.Err())
	}
}
