package redisbatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	idsMax = 1000
	// refreshesPerMinIdle is how often an entry in flight is refreshed
	// within MinIdle. Two refreshes in a row may fail.
	refreshesPerMinIdle = 4
	// expiredIdle is longer than any consumer's MinIdle.
	expiredIdle = 24 * time.Hour
)

// ack sends acknowledgements to Redis until ctx ends.
// It refreshes the other entries in flight, so that
// no consumer claims them while their handlers run.
func (s *subscription) ack(ctx context.Context) {
	tick := time.NewTicker(s.cfg.MinIdle / (2 * refreshesPerMinIdle))
	defer tick.Stop()
	var tidied time.Time
	for ctx.Err() == nil {
		select {
		case <-s.window.acks:
			if !s.window.allAcked() {
				sleep(ctx, s.cfg.AckDelay) // let more acks arrive
			}
			s.sendAcks(ctx)
		case <-tick.C:
			s.claim(ctx, time.Now().Add(-s.cfg.MinIdle/refreshesPerMinIdle))
			s.counters.oldest.Set(s.window.oldest().Seconds())
			if time.Since(tidied) > pruneInterval {
				tidied = time.Now()
				s.dropNames(ctx, abandonedAfter)
			}
		case <-ctx.Done():
		}
	}
}

// sendAcks sends all queued acknowledgements. It
// retries until ctx ends or the client closes.
func (s *subscription) sendAcks(ctx context.Context) {
	for retry := redisBackoff(); ; {
		entries, ids := s.window.toAck(idsMax)
		if len(entries) == 0 {
			return
		}
		var err error
		if len(ids) > 0 {
			err = s.cfg.Client.XAck(ctx, s.stream, s.cfg.Group, ids...).Err()
		}
		if err == nil {
			s.window.removeAcked(len(entries))
			s.counters.inFlight.Sub(float64(len(entries)))
			s.counters.acked.Add(float64(len(entries)))
			retry.Reset()
			continue
		}
		wait := retry.NextBackOff()
		s.counters.redisErrors.Inc()
		s.log.Warn("XACK failed, will try again", "error", err, "entries", len(entries), "wait_ms", wait.Milliseconds())
		if !sleep(ctx, wait) || errors.Is(err, redis.ErrClosed) {
			return
		}
	}
}

// claim claims this consumer's entries that were last
// refreshed before a time. That resets their idle time,
// or options set it. JUSTID does not count as a delivery.
func (s *subscription) claim(ctx context.Context, before time.Time, options ...any) {
	for batch := range slices.Chunk(s.window.due(before), idsMax) {
		args := []any{"xclaim", s.stream, s.cfg.Group, s.cfg.Name, 0}
		for _, e := range batch {
			args = append(args, e.ID)
		}
		args = append(append(args, options...), "justid")
		if err := s.cfg.Client.Do(ctx, args...).Err(); err != nil {
			s.counters.redisErrors.Inc()
			s.log.Warn("XCLAIM of messages in flight failed", "error", err, "entries", len(batch))
			return
		}
	}
}

// A consumer without pending entries is removed after abandonedAfter
// without activity. Each subscription checks that every pruneInterval.
// The next read of a live one creates it again.
const abandonedAfter, pruneInterval = time.Hour, 10 * time.Minute

// dropAbandoned removes all consumers but one that have nothing pending
// and were idle for a time. It is a script, as a consumer must not get
// an entry in between: it would be lost.
//
//nolint:dupword,gochecknoglobals // blocks of Lua end twice; nothing writes to it
var dropAbandoned = redis.NewScript(`
local dropped = 0
for _, one in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local is = {}
  for i = 1, #one, 2 do is[one[i]] = one[i + 1] end
  if is.name ~= ARGV[2] and is.pending == 0 and is.idle > tonumber(ARGV[3]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], is.name)
    dropped = dropped + 1
  end
end
return dropped`)

func (s *subscription) dropNames(ctx context.Context, idle time.Duration) {
	n, err := dropAbandoned.Run(ctx, s.cfg.Client, []string{s.stream}, s.cfg.Group, s.cfg.Name, idle.Milliseconds()).Int64()
	if err == nil && n > 0 { // on an error the group is missing, or the reader logs it
		s.log.Info("removed consumers that left nothing pending and were away for long", "consumers", n)
	}
}
