package process

import (
	"context"
	"time"

	"dibs/finance"
	"dibs/internal/sleep"
	"dibs/syncer/offset"
)

// drainPoll is the pause between two checks for uncredited events.
const drainPoll = 20 * time.Millisecond

// drainEmbedded waits until the database has everything in the embedded
// Redis, whose data ends with this process.
func (s *Stack) drainEmbedded(credits bool) {
	ctx, cancel := context.WithTimeout(context.Background(), s.Config.ShutdownTimeout/2)
	defer cancel()
	if err := offset.NewStreams(s.DB, s.Scripts).AwaitApplied(ctx); err != nil {
		s.Logger.Error("what is left in the embedded redis may be lost", "error", err)
	}
	for p := range s.Config.Partitions {
		if credits && !s.awaitCredited(ctx, p) {
			s.Logger.Error("events in the embedded redis were not credited", "partition", p)
		}
	}
}

// awaitCredited polls until the finance service has acknowledged the whole
// stream; false if ctx ends first.
func (s *Stack) awaitCredited(ctx context.Context, partition int) bool {
	for {
		stream, err := s.Scripts.Stream(ctx, partition)
		if err == nil {
			unread, unreadErr := s.Scripts.Unread(ctx, partition, finance.Group)
			if unreadErr == nil && unread.Upto(stream.Tip) {
				return true
			}
		}
		if sleep.For(ctx, drainPoll) != nil {
			return false
		}
	}
}
