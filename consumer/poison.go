package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"dibs/models"
)

// Fields of an entry of a poison stream, before the fields that the entry had.
const (
	PoisonIDField     = "_dibs_id"     // id of the entry in its stream
	PoisonGroupField  = "_dibs_group"  // group that could not handle it
	PoisonReasonField = "_dibs_reason" // why, for people
	PoisonTriesField  = "_dibs_tries"  // how often the process that gave up had handed it to its handler; 0: it could not be read
	PoisonAtField     = "_dibs_at"     // when, in models.TimeLayout, by that process' clock
)

// reasonLength bounds the reason, in bytes.
const reasonLength = 1000

var (
	// ErrPermanent is what errors.Is finds in the errors that Permanent makes.
	ErrPermanent = errors.New("consumer: permanent")
	// ErrForeign says that a message did not come from a Subscriber of this package.
	ErrForeign = errors.New("consumer: not a message of this subscriber")
	// ErrPoisonFull says that a poison stream holds as many entries as it may: see SubscriberConfig.PoisonMax.
	ErrPoisonFull = errors.New("consumer: the poison stream is full")
)

// Permanent marks an error of a handler as one that no redelivery will cure: the message goes to the poison stream.
func Permanent(err error) error { return fmt.Errorf("%w: %w", ErrPermanent, err) }

// Poison adds the entry of a message to the poison stream, with its fields, its id and the reason. The caller acks the
// message when it returns nil, and nacks it when not. An entry may come to the poison stream twice when a process dies
// in between. (One MULTI of XADD and XACK would not be better: Redis rolls nothing back, and where the XADD fails the
// XACK would be done all the same.)
func Poison(msg *message.Message, reason error) error {
	f := flightOf(msg.Context())
	if f == nil {
		return ErrForeign
	}
	return f.sub.poison(msg.Context(), f, reason)
}

func (s *subscription) poison(ctx context.Context, f *flight, reason error) error {
	args := redis.XAddArgs{Stream: s.cfg.PoisonKey(s.stream), Values: s.poisonFields(f, reason)}
	if err := s.roomForPoison(ctx, args.Stream); err != nil {
		return fmt.Errorf("entry %s of %s: %w", f.id, s.stream, err)
	}
	if err := s.cfg.Client.XAdd(ctx, &args).Err(); err != nil {
		return fmt.Errorf("consumer: adding entry %s of %s to the poison stream: %w", f.id, s.stream, err)
	}
	s.meters.poisoned.Inc()
	s.log.Error("entry goes to the poison stream", "entry", f.id, "reason", reason)
	return nil
}

// roomForPoison keeps a fault that hits everything from filling Redis: the entries then wait where they are. Several
// processes that look at once may go over the limit by as many.
func (s *subscription) roomForPoison(ctx context.Context, key string) error {
	if s.cfg.PoisonMax == 0 {
		return nil
	}
	n, err := s.cfg.Client.XLen(ctx, key).Result()
	if err != nil {
		return fmt.Errorf("consumer: counting %s: %w", key, err)
	}
	if n >= s.cfg.PoisonMax {
		return fmt.Errorf("%w: %s holds %d", ErrPoisonFull, key, n)
	}
	return nil
}

func (s *subscription) poisonFields(f *flight, reason error) []any {
	text := reason.Error()
	fields := []any{
		PoisonIDField, f.id,
		PoisonGroupField, s.cfg.Group,
		PoisonReasonField, text[:min(len(text), reasonLength)],
		PoisonTriesField, f.attempts,
		PoisonAtField, models.NewTime(time.Now()).Format(models.TimeLayout),
	}
	for _, name := range slices.Sorted(maps.Keys(f.fields)) {
		fields = append(fields, name, f.fields[name])
	}
	return fields
}

// carryPoison poisons an entry that makes no message. It tries until it succeeds or the drain is over.
func (s *subscription) carryPoison(f *flight, reason error) {
	defer s.carriers.Done()
	retry := s.cfg.ReadBackoff.start()
	for {
		err := s.poison(s.ctx, f, reason)
		if err == nil {
			s.acks.add(f)
			return
		}
		s.meters.troubles.Inc()
		s.log.Warn("poisoning failed, will try again", "error", err)
		if !pause(s.stop, retry.NextBackOff()) {
			return
		}
	}
}
