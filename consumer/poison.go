package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
	"dibs/models"
)

// Fields of an entry of a poison stream, before the fields that the entry had.
const (
	poisonIDField     = "_dibs_id"     // id of the entry in its stream
	poisonGroupField  = "_dibs_group"  // group that could not handle it
	poisonReasonField = "_dibs_reason" // why, for people
	poisonTriesField  = "_dibs_tries"  // how often the process that gave up had handed it to its handler; 0: it could not be read
	poisonAtField     = "_dibs_at"     // when, in models.TimeLayout, by that process' clock
)

// reasonLength bounds the reason, in bytes.
const reasonLength = 1000

// ErrPermanent is what errors.Is finds in the errors that Permanent makes.
var ErrPermanent = errors.New("consumer: permanent")

// Permanent marks an error of a handler as one that no redelivery will cure: the message goes to the poison stream.
func Permanent(err error) error { return fmt.Errorf("%w: %w", ErrPermanent, err) }

// poison adds an entry to the poison stream, with its fields, its id and the reason. Its message is acked when poison returns nil, and
// nacked when not. An entry may come to the poison stream twice when a process dies in between. (One MULTI of XADD and XACK would not
// be better: Redis rolls nothing back, and where the XADD fails the XACK would be done all the same.)
func (s *subscription) poison(ctx context.Context, e *entry, reason error) error {
	args := redis.XAddArgs{Stream: s.cfg.poisonKey(s.stream), Values: s.poisonFields(e, reason)}
	if err := s.checkPoisonRoom(ctx, args.Stream); err != nil {
		return fmt.Errorf("entry %s of %s: %w", e.id, s.stream, err)
	}
	if err := s.cfg.client.XAdd(ctx, &args).Err(); err != nil {
		return fmt.Errorf("consumer: adding entry %s of %s to the poison stream: %w", e.id, s.stream, err)
	}
	s.counters.poisoned.Inc()
	s.log.Error("entry cannot be handled, it goes to the poison stream", "entry", e.id, "poison_stream", args.Stream, "reason", reason)
	return nil
}

// checkPoisonRoom keeps a fault that concerns every entry from filling Redis: the entries then stay where they are. Several processes
// that look at once may go over the limit by as many.
func (s *subscription) checkPoisonRoom(ctx context.Context, key string) error {
	n, err := s.cfg.client.XLen(ctx, key).Result()
	if err != nil {
		return fmt.Errorf("consumer: counting %s: %w", key, err)
	}
	if n >= s.cfg.poisonMax {
		return fmt.Errorf("consumer: the poison stream is full: %s holds %d entries: replay or delete some of them", key, n)
	}
	return nil
}

func (s *subscription) poisonFields(e *entry, reason error) []any {
	text := reason.Error()
	fields := []any{
		poisonIDField, e.id,
		poisonGroupField, s.cfg.group,
		poisonReasonField, text[:min(len(text), reasonLength)],
		poisonTriesField, e.attempts,
		poisonAtField, models.NewTime(time.Now()).Format(models.TimeLayout),
	}
	for _, name := range slices.Sorted(maps.Keys(e.fields)) {
		fields = append(fields, name, e.fields[name])
	}
	return fields
}

// poisonUnreadable poisons an entry that makes no message. It tries until it succeeds or the subscription stops.
func (s *subscription) poisonUnreadable(e *entry, reason error) {
	retry := s.cfg.readBackoff.start()
	for {
		err := s.poison(s.ctx, e, reason)
		if err == nil {
			s.acks.add(e)
			return
		}
		s.counters.redisErrors.Inc()
		s.log.Warn("adding an unreadable entry to the poison stream failed, will try again", "error", err)
		if sleep.For(s.stop, retry.NextBackOff()) != nil {
			return
		}
	}
}
