package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// Fields of an entry of a poison stream, before the fields that the entry had.
const (
	PoisonIDField     = "_dibs_id"     // id of the entry in its stream
	PoisonGroupField  = "_dibs_group"  // group that could not handle it
	PoisonReasonField = "_dibs_reason" // why, for people
)

// reasonLength bounds the reason, in bytes.
const reasonLength = 1000

var (
	// ErrPermanent is what errors.Is finds in the errors that Permanent makes.
	ErrPermanent = errors.New("consumer: permanent")
	// ErrForeign says that a message did not come from a Subscriber of this package.
	ErrForeign = errors.New("consumer: not a message of this subscriber")
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
	if err := s.cfg.Client.XAdd(ctx, &args).Err(); err != nil {
		return fmt.Errorf("consumer: adding entry %s of %s to the poison stream: %w", f.id, s.stream, err)
	}
	s.meters.poisoned.Inc()
	s.log.Error("entry goes to the poison stream", "entry", f.id, "reason", reason)
	return nil
}

func (s *subscription) poisonFields(f *flight, reason error) []any {
	text := reason.Error()
	fields := []any{
		PoisonIDField, f.id,
		PoisonGroupField, s.cfg.Group,
		PoisonReasonField, text[:min(len(text), reasonLength)],
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
