package process

import (
	"context"
	"time"

	"dibs/internal/sleep"
)

// A stop has one deadline, DIBS_SHUTDOWN_TIMEOUT after it started, and its
// parts follow each other: what HTTP took is answered, events in flight are
// handled, what is pending is flushed. Each has a share of the time, and none
// goes beyond the deadline.
//
// A command that Redis does not answer ends no sooner than its timeout,
// whatever becomes of its context. So that a Redis that hangs holds no one up,
// its connections are closed before the last share begins: nothing after that
// needs them, and what was not acked is delivered again.

// startShutdownTimer starts the clock once ctx ends; release must be called
// when all has ended. The connections to an embedded Redis stay: it does not
// hang, and has what is nowhere else.
func (s *Stack) startShutdownTimer(ctx context.Context) (release func()) {
	running, release := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		select {
		case <-ctx.Done():
		case <-running.Done():
			return
		}
		s.end.Store(new(time.Now().Add(s.Config.ShutdownTimeout)))
		if s.Config.RedisURL == "" || sleep.For(running, s.Config.ShutdownTimeout-s.share()) != nil {
			return
		}
		s.Logger.Warn("the end takes long: what redis was not told by now will be delivered again")
		_ = s.Redis.Close() // what fails then fails for this
	}()
	return release
}

// share is how long one part of a stop may take.
func (s *Stack) share() time.Duration { return s.Config.ShutdownTimeout / 3 }

// drainContext is for what is done after ctx: a share of the time, or what is
// left of it.
func (s *Stack) drainContext(ctx context.Context) (context.Context, context.CancelFunc) {
	until := time.Now().Add(s.share())
	if end := s.end.Load(); end != nil && end.Before(until) {
		until = *end
	}
	return context.WithDeadline(context.WithoutCancel(ctx), until)
}
