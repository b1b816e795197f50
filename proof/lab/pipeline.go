package lab

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// pipeline reads in one round trip and counts in another, by commands that add rather than overwrite. Nothing keeps
// others from coming in between.
type pipeline struct{ counter }

func pipelineStrategy() Entry {
	return Entry{
		Name: "pipeline", Title: "Redis pipeline", Flaw: "saves round trips, and lets others in between", DieAt: StepRead,
		New: func(env Env) (Strategy, error) { return &pipeline{counter{env}}, nil },
	}
}

// Claim reads in one pipeline, decides, and takes in another.
func (s *pipeline) Claim(ctx context.Context, user string) (Outcome, error) {
	stock, had, err := s.read(ctx, s.Redis, user)
	if err != nil {
		return 0, err
	}
	if err := s.at(StepRead); err != nil {
		return 0, err
	}
	if outcome := s.decide(stock, had); outcome != Claimed {
		return outcome, nil
	}
	_, err = s.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Decr(ctx, s.stockKey())
		p.HIncrBy(ctx, s.usersKey(), user, 1)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("lab: take: %w", err)
	}
	return Claimed, nil
}
