package lab

import "context"

// setNXPX makes the lock and its end in one command. The lock is no one's: whoever deletes it has released it.
type setNXPX struct{ counter }

func setNXPXStrategy() Entry {
	return Entry{
		Name: "set-nx-px", Title: "SET NX PX", Flaw: "a holder slower than its lease lets a second in, then frees the second's lock",
		Sound: true, DieAt: StepLocked,
		New: func(env Env) (Strategy, error) { return &setNXPX{counter{env}}, nil },
	}
}

// Claim sells under a lock that ends by itself, and deletes the lock that is there afterwards.
func (s *setNXPX) Claim(ctx context.Context, user string) (outcome Outcome, err error) {
	had, err := s.acquire(ctx, func(ctx context.Context) (bool, error) {
		return s.Redis.SetNX(ctx, s.lockKey(), "1", s.Lease).Result() // with a time go-redis sends SET NX PX
	})
	if err != nil || !had {
		return Busy, err
	}
	defer give(ctx, &err, s.drop)
	if err := s.at(StepLocked); err != nil {
		return 0, err
	}
	return s.sell(ctx, user)
}
