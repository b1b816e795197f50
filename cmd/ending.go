package cmd

import (
	"context"
	"sync"
	"time"
)

// A stop has one deadline, DIBS_SHUTDOWN_TIMEOUT after it started, and its parts follow each other: what HTTP took is answered,
// events in flight are handled, what is pending is flushed. Each has a share of the time, and none goes beyond the deadline.
//
// A command that Redis does not answer ends no sooner than its timeout, whatever becomes of its context. So that a Redis that
// hangs holds no one up, its connections are closed before the last share begins: nothing after that needs them, and what was
// not acked is delivered again.

// startShutdownTimer starts the clock once ctx ends; release must be called when all has ended.
func (s *stack) startShutdownTimer(ctx context.Context) (release func()) {
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-ctx.Done():
			s.end.Store(new(time.Now().Add(s.cfg.ShutdownTimeout)))
			s.closeRedisOnTimeout(ended)
		case <-ended:
		}
	})
	return func() {
		close(ended)
		watch.Wait()
	}
}

// closeRedisOnTimeout closes the connections to Redis unless all ends before. An embedded one does not hang, and has what is nowhere else.
func (s *stack) closeRedisOnTimeout(ended <-chan struct{}) {
	if s.cfg.RedisURL == "" {
		return
	}
	select {
	case <-time.After(s.cfg.ShutdownTimeout - s.share()):
		s.log.Warn("the end takes long: what redis was not told by now will be delivered again")
		_ = s.rdb.Close() // what fails then fails for this
	case <-ended:
	}
}

// share is how long one part of a stop may take.
func (s *stack) share() time.Duration { return s.cfg.ShutdownTimeout / 3 }

// drainContext is for what is done after ctx: a share of the time, or what is left of it.
func (s *stack) drainContext(ctx context.Context) (context.Context, context.CancelFunc) {
	until := time.Now().Add(s.share())
	if end := s.end.Load(); end != nil && end.Before(until) {
		until = *end
	}
	return context.WithDeadline(context.WithoutCancel(ctx), until)
}
