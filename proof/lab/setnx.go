package lab

import "context"

// setNX locks by a key that only one can make, and removes it when the claim went well.
type setNX struct{ counter }

func setNXStrategy() Entry {
	return Entry{
		Name: "setnx", Title: "SETNX", Flaw: "a holder that fails or dies leaves the lock for ever", Sound: true, DieAt: StepLocked,
		New: func(env Env) (Strategy, error) { return &setNX{counter{env}}, nil },
	}
}

// Claim sells under the lock. A claim that fails in between never comes to the release: that is the flaw.
func (s *setNX) Claim(ctx context.Context, user string) (Outcome, error) {
	had, err := s.acquire(ctx, s.trySetNX)
	if err != nil || !had {
		return Busy, err
	}
	if err := s.at(StepLocked); err != nil {
		return 0, err
	}
	outcome, err := s.sell(ctx, user)
	if err != nil {
		return 0, err
	}
	return outcome, s.Redis.Del(ctx, s.lockKey()).Err()
}

// trySetNX makes the lock's key, without an end and without an owner.
func (c *counter) trySetNX(ctx context.Context) (bool, error) {
	return c.Redis.SetNX(ctx, c.lockKey(), "1", 0).Result()
}

// drop removes the lock's key, whoever's it is.
func (c *counter) drop(ctx context.Context) error { return c.Redis.Del(ctx, c.lockKey()).Err() }
