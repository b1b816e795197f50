// Package workers tracks goroutines that outlive a request, so that a
// shutdown can wait for them.
package workers

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrStop means the time to stop was up before the work was done.
var ErrStop = errors.New("workers: did not stop in time")

// Group is a group of goroutines. The zero value is ready to use.
type Group struct {
	mu      sync.Mutex
	stopped bool
	running sync.WaitGroup
}

// Go runs work in a goroutine. It returns false, without running it, if the
// group is stopped.
func (g *Group) Go(work func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.stopped {
		g.running.Go(work)
	}
	return !g.stopped
}

// Stop lets no goroutine start and waits for the running ones. It may be
// called again.
func (g *Group) Stop(ctx context.Context) error {
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	done := make(chan struct{})
	go func() {
		g.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: work is still running: %w", ErrStop, ctx.Err())
	}
}
