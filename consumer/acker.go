package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
)

const (
	// ackCount is the most ids of one XACK.
	ackCount = 1000
	// claimCount is the most ids of one XCLAIM.
	claimCount = 500
	// refreshesPerMinIdle is how many times within minIdle an entry in flight is refreshed: two refreshes in a row may fail.
	refreshesPerMinIdle = 4
	// expiredIdle is longer than any consumer's minIdle.
	expiredIdle = 24 * time.Hour
)

// ack acknowledges in Redis what handlers acked, until ctx ends. It refreshes the other entries in flight, so that no consumer
// claims them, however long their handlers take.
func (s *subscription) ack(ctx context.Context) {
	tick := time.NewTicker(s.cfg.minIdle / (2 * refreshesPerMinIdle))
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-s.acks.nonEmpty:
			s.awaitMoreAcks(ctx)
			s.sendAcks(ctx)
		case <-tick.C:
			s.refresh(ctx)
			s.counters.oldest.Set(s.window.oldest().Seconds())
		case <-ctx.Done():
		}
	}
}

// awaitMoreAcks lets acks gather behind the first one, unless nothing is in flight that could be acked.
func (s *subscription) awaitMoreAcks(ctx context.Context) {
	if s.acks.count() >= s.window.count() {
		return
	}
	timer := time.NewTimer(s.cfg.ackDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.acks.full:
	case <-ctx.Done():
	}
}

// sendAcks acknowledges in Redis all that handlers acked. It tries until ctx ends; what is left then stays queued.
func (s *subscription) sendAcks(ctx context.Context) {
	var left []*entry
	for batch := range slices.Chunk(s.acks.take(), ackCount) {
		if len(left) > 0 || !s.sendBatch(ctx, batch) {
			left = append(left, batch...)
		}
	}
	s.acks.add(left...)
}

// sendBatch acknowledges one batch in Redis and removes it from the window; false when ctx ends first, or the client is closed.
func (s *subscription) sendBatch(ctx context.Context, batch []*entry) bool {
	retry := s.cfg.readBackoff.start()
	for {
		err := s.xack(ctx, s.window.pendingIDs(batch))
		if err == nil {
			s.window.remove(batch)
			s.counters.inFlight.Sub(float64(len(batch)))
			s.counters.acked.Add(float64(len(batch)))
			return true
		}
		wait := retry.NextBackOff()
		s.counters.redisErrors.Inc()
		s.log.Warn("XACK failed, will try again", "error", err, "entries", len(batch), "wait_ms", wait.Milliseconds())
		if sleep.For(ctx, wait) != nil || errors.Is(err, redis.ErrClosed) {
			return false
		}
	}
}

func (s *subscription) xack(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return s.cfg.client.XAck(ctx, s.stream, s.cfg.group, ids...).Err()
}

// refresh resets the idle time of what has been in flight for a while, by claiming it for the consumer that has it.
func (s *subscription) refresh(ctx context.Context) {
	due := s.window.refreshedBefore(time.Now().Add(-s.cfg.minIdle / refreshesPerMinIdle))
	for batch := range slices.Chunk(due, claimCount) {
		now := time.Now()
		if err := s.xclaim(ctx, batch); err != nil {
			s.counters.redisErrors.Inc()
			s.log.Debug("XCLAIM of messages in flight failed, will try again", "error", err, "entries", len(due))
			return
		}
		s.window.setRefreshed(batch, now)
	}
}

// expireIdle makes what is still in flight idle for so long that any other consumer claims it at once.
func (s *subscription) expireIdle(ctx context.Context) {
	all := s.window.refreshedBefore(time.Now().Add(time.Second))
	for batch := range slices.Chunk(all, claimCount) {
		if ctx.Err() != nil {
			return
		}
		if err := s.xclaim(ctx, batch, "idle", expiredIdle.Milliseconds()); err != nil {
			s.log.Warn("XCLAIM of unfinished messages failed: other consumers wait for MinIdle before they take them", "error", err)
			return
		}
	}
}

// xclaim claims entries for the consumer that has them. JUSTID leaves their count of deliveries alone.
func (s *subscription) xclaim(ctx context.Context, entries []*entry, options ...any) error {
	args := make([]any, 0, 6+len(entries)+len(options))
	args = append(args, "xclaim", s.stream, s.cfg.group, s.cfg.name, 0)
	for _, e := range entries {
		args = append(args, e.id)
	}
	args = append(args, options...)
	args = append(args, "justid")
	return s.cfg.client.Do(ctx, args...).Err()
}
