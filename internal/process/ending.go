package process

import (
	"context"
	"time"

	"dibs/internal/sleep"
)

// A stop has one deadline, DIBS_SHUTDOWN_TIMEOUT after it started. Its
// parts run in order: HTTP requests are answered, events in flight are
// handled, pending rows are flushed. Each has a share of the time, and none
// exceeds the deadline.
//
// A command to a stalled Redis ends only at its own timeout, whatever its
// context does. So that a hanging Redis doesn't delay the stop, its
// connections are closed before the last share. Nothing after that needs
// them, and unacknowledged events are redelivered.

// startShutdownTimer starts the clock when ctx ends. Call release when
// everything has ended. Connections to an embedded Redis stay open: it
// doesn't hang, and it has data that exists only there.
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
		s.Logger.Warn("stopping takes long: what is not acknowledged in redis by now will be delivered again")
		_ = s.Redis.Close() // its commands then fail for this reason
	}()
	return release
}

// share is the time for one part of a stop.
func (s *Stack) share() time.Duration { return s.Config.ShutdownTimeout / 3 }

// drainContext is for work after ctx ended: it lasts for a share, or until
// the deadline.
func (s *Stack) drainContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.WithoutCancel(ctx), s.before(s.share()))
}

// before is the time in d, or the deadline if that is earlier.
func (s *Stack) before(d time.Duration) time.Time {
	until := time.Now().Add(d)
	if end := s.end.Load(); end != nil && end.Before(until) {
		until = *end
	}
	return until
}
