package lua

import (
	"context"
	"maps"
	"sync"
	"time"

	"dibs/internal/sleep"
	"dibs/models/event"
)

const (
	signalTimeout = time.Second            // of one signal
	signalPause   = 100 * time.Millisecond // between two tries
)

// OffsetSignal publishes MySQL's offsets to API processes and readers. It
// runs apart from the flushes, which must not wait for a stalled Redis.
type OffsetSignal struct {
	scripts *Scripts
	wake    chan struct{} // has a token after Publish
	stop    func()

	mu      sync.Mutex
	offsets map[int]event.Offset // to publish
}

// NewOffsetSignal starts an OffsetSignal; Stop stops it.
func NewOffsetSignal(scripts *Scripts) *OffsetSignal {
	s := &OffsetSignal{scripts: scripts, wake: make(chan struct{}, 1), offsets: make(map[int]event.Offset)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	s.stop = func() {
		cancel()
		running.Wait()
	}
	return s
}

// Stop publishes what is left, once, and stops.
func (s *OffsetSignal) Stop() { s.stop() }

func (s *OffsetSignal) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-s.wake:
			for !s.signal() && sleep.For(ctx, signalPause) == nil { //nolint:revive // until all is published
			}
		case <-ctx.Done():
		}
	}
	_ = s.signal() // the next reader publishes it again
}

// signal reports whether all offsets were published.
func (s *OffsetSignal) signal() bool {
	s.mu.Lock()
	published := maps.Clone(s.offsets)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), signalTimeout)
	defer cancel()
	if s.scripts.Signal(ctx, published) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.offsets, func(partition int, at event.Offset) bool { return published[partition] == at })
	return true
}

// Publish sends offsets soon. It is safe for concurrent use.
func (s *OffsetSignal) Publish(offsets map[int]event.Offset) {
	s.mu.Lock()
	maps.Copy(s.offsets, offsets)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // there is a token
	}
}
