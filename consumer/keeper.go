package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// keepBatch is the most ids of one XCLAIM.
	keepBatch = 500
	// handedBackIdle is the age given to entries that are handed back: older than anybody's MinIdle.
	handedBackIdle = 24 * time.Hour
)

// keep talks to Redis about what is in flight until finish closes: it acks what handlers acked, and keeps the rest fresh
// so that nobody takes it away, however long MySQL or whoever stands behind the handlers is gone.
func (s *subscription) keep(finish <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-finish
		cancel()
	}()
	tick := time.NewTicker(s.cfg.MinIdle / (2 * keepAliveParts))
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-s.acks.some:
			s.linger(ctx)
			s.flush(ctx)
		case <-tick.C:
			s.keepAlive(ctx)
			s.showAge()
		case <-ctx.Done():
		}
	}
}

// linger lets more acks gather behind the first, unless nothing is in flight that could be acked.
func (s *subscription) linger(ctx context.Context) {
	if s.acks.count() >= s.window.count() {
		return
	}
	timer := time.NewTimer(s.cfg.AckDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.acks.full:
	case <-ctx.Done():
	}
}

// flush acks in Redis all that handlers have acked. It tries until ctx ends; what is left then stays queued.
func (s *subscription) flush(ctx context.Context) {
	var left []*flight
	for batch := range slices.Chunk(s.acks.take(), s.cfg.AckCount) {
		if len(left) > 0 || !s.ack(ctx, batch) {
			left = append(left, batch...)
		}
	}
	s.acks.add(left...)
}

// ack acks one batch in Redis and frees its room; false when ctx ends first, or the client is closed.
func (s *subscription) ack(ctx context.Context, batch []*flight) bool {
	retry := s.cfg.ReadBackoff.start()
	for {
		err := s.xack(ctx, ids(s.window.current(batch)))
		if err == nil {
			s.window.release(batch)
			s.meters.inFlight.Sub(float64(len(batch)))
			s.meters.acked.Add(float64(len(batch)))
			return true
		}
		wait := retry.NextBackOff()
		s.meters.troubles.Inc()
		s.log.Warn("acking failed, will try again", "error", err, "entries", len(batch), "wait_ms", wait.Milliseconds())
		if !pause(ctx, wait) || errors.Is(err, redis.ErrClosed) {
			return false
		}
	}
}

func (s *subscription) xack(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return s.cfg.Client.XAck(ctx, s.stream, s.cfg.Group, ids...).Err()
}

// keepAlive resets the idle time of what has been in flight for a while, by claiming it for ourselves.
func (s *subscription) keepAlive(ctx context.Context) {
	if s.keepAliveOff {
		return
	}
	due := s.window.untouched(time.Now().Add(-s.cfg.MinIdle / keepAliveParts))
	for batch := range slices.Chunk(due, keepBatch) {
		now := time.Now()
		if err := s.xclaim(ctx, batch); err != nil {
			s.meters.troubles.Inc()
			s.log.Debug("keeping messages in flight failed, will try again", "error", err, "entries", len(due))
			return
		}
		s.window.touch(batch, now)
	}
}

// handBack makes what is still in flight old enough for any other consumer to take at once.
func (s *subscription) handBack(ctx context.Context) {
	for batch := range slices.Chunk(s.window.all(), keepBatch) {
		if ctx.Err() != nil {
			return
		}
		if err := s.xclaim(ctx, batch, "idle", handedBackIdle.Milliseconds()); err != nil {
			s.log.Warn("handing messages back failed; they come again after MinIdle", "error", err)
			return
		}
	}
}

// xclaim claims entries for the consumer that has them. JUSTID leaves their count of deliveries alone.
func (s *subscription) xclaim(ctx context.Context, flights []*flight, options ...any) error {
	args := make([]any, 0, 6+len(flights)+len(options))
	args = append(args, "xclaim", s.stream, s.cfg.Group, s.consumer, 0)
	for _, f := range flights {
		args = append(args, f.id)
	}
	args = append(args, options...)
	args = append(args, "justid")
	return s.cfg.Client.Do(ctx, args...).Err()
}

func (s *subscription) showAge() {
	if oldest := s.window.oldest(); oldest.IsZero() {
		s.meters.oldest.Set(0)
	} else {
		s.meters.oldest.Set(time.Since(oldest).Seconds())
	}
}

func ids(flights []*flight) []string {
	list := make([]string, len(flights))
	for i, f := range flights {
		list[i] = f.id
	}
	return list
}
