package lab

import (
	"context"
	"fmt"
)

// setNXExpire gives the lock an end, with a second command.
type setNXExpire struct{ counter }

func setNXExpireStrategy() Entry {
	return Entry{
		Name: "setnx-expire", Title: "SETNX, then EXPIRE", Flaw: "who dies between the two leaves the lock for ever", Sound: true,
		DieAt: StepLocked,
		New:   func(env Env) (Strategy, error) { return &setNXExpire{counter{env}}, nil },
	}
}

// Claim sells under the lock, which has no end until the second command came through.
func (s *setNXExpire) Claim(ctx context.Context, user string) (outcome Outcome, err error) {
	had, err := s.acquire(ctx, s.trySetNX)
	if err != nil || !had {
		return Busy, err
	}
	defer give(ctx, &err, s.drop)
	if err := s.at(StepLocked); err != nil {
		return 0, err
	}
	if err := s.Redis.PExpire(ctx, s.lockKey(), s.Lease).Err(); err != nil {
		return 0, fmt.Errorf("lab: expire: %w", err)
	}
	return s.sell(ctx, user)
}
