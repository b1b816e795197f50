package lua

import (
	"context"
	"maps"
	"sync"
	"time"

	"dibs/internal/sleep"
	"dibs/models"
)

const (
	signalTimeout = time.Second            // of one signal
	signalPause   = 100 * time.Millisecond // before it is tried again
)

// OffsetSignal tells API processes and readers how far MySQL has applied the claim streams, beside
// the flushes: they don't wait for a Redis that hangs.
type OffsetSignal struct {
	scripts *Scripts
	wake    chan struct{} // has a token when there is something to tell
	stop    func()

	mu      sync.Mutex
	offsets map[int]models.Offset // to tell
}

// NewOffsetSignal makes one, which runs until Stop.
func NewOffsetSignal(scripts *Scripts) *OffsetSignal {
	s := &OffsetSignal{scripts: scripts, wake: make(chan struct{}, 1), offsets: make(map[int]models.Offset)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	s.stop = func() {
		cancel()
		running.Wait()
	}
	return s
}

// Stop signals what is left, once, and ends it.
func (s *OffsetSignal) Stop() { s.stop() }

func (s *OffsetSignal) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-s.wake:
			for !s.signal() && sleep.For(ctx, signalPause) == nil { //nolint:revive // until all is told
			}
		case <-ctx.Done():
		}
	}
	_ = s.signal() // whoever reads next tells it anew
}

// signal reports whether Redis was told all.
func (s *OffsetSignal) signal() bool {
	s.mu.Lock()
	told := maps.Clone(s.offsets)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), signalTimeout)
	defer cancel()
	if s.scripts.Signal(ctx, told) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.offsets, func(partition int, at models.Offset) bool { return told[partition] == at })
	return true
}

// Tell has the offsets signaled soon. It may be called by any goroutine.
func (s *OffsetSignal) Tell(offsets map[int]models.Offset) {
	s.mu.Lock()
	maps.Copy(s.offsets, offsets)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // it will be seen
	}
}
