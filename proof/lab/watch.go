package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
)

// watch is optimistic: EXEC does nothing if someone touched what was read, and then it all starts again.
type watch struct{ counter }

func watchStrategy() Entry {
	return Entry{
		Name: "watch", Title: "WATCH, MULTI, EXEC", Flaw: "a crowd retries each other; nothing is rolled back if a command fails",
		Sound: true, DieAt: StepRead,
		New: func(env Env) (Strategy, error) { return &watch{counter{env}}, nil },
	}
}

// takenKey lists who was given a unit, in order.
func (e *Env) takenKey() string { return e.key("taken") }

// Prepare writes the stock and forgets the list.
func (s *watch) Prepare(ctx context.Context) error {
	if err := s.Redis.Del(ctx, s.takenKey()).Err(); err != nil {
		return fmt.Errorf("lab: prepare: %w", err)
	}
	return s.counter.Prepare(ctx)
}

// Claim tries until its transaction goes through or patience is over.
func (s *watch) Claim(ctx context.Context, user string) (Outcome, error) {
	deadline := time.Now().Add(s.Patience)
	for time.Now().Before(deadline) {
		outcome, err := s.try(ctx, user)
		if !errors.Is(err, redis.TxFailedErr) {
			return outcome, err
		}
		if err := sleep.For(ctx, s.pause()); err != nil {
			return Busy, err
		}
	}
	return Busy, nil
}

func (s *watch) try(ctx context.Context, user string) (outcome Outcome, err error) {
	err = s.Redis.Watch(ctx, func(tx *redis.Tx) error {
		stock, had, err := s.read(ctx, tx, user)
		if err != nil {
			return err
		}
		if err := s.at(StepRead); err != nil {
			return err
		}
		outcome = s.decide(stock, had)
		if outcome != Claimed {
			return nil
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Decr(ctx, s.stockKey())
			p.HIncrBy(ctx, s.usersKey(), user, 1)
			p.RPush(ctx, s.takenKey(), user)
			return nil
		})
		return err
	}, s.stockKey(), s.usersKey())
	if err != nil {
		return 0, fmt.Errorf("lab: watch: %w", err)
	}
	return outcome, nil
}
