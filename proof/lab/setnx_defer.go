package lab

import "context"

// setNXDefer is SETNX whose release is deferred, so that it happens after a failure too.
type setNXDefer struct{ counter }

func setNXDeferStrategy() Entry {
	return Entry{
		Name: "setnx-defer", Title: "SETNX, deferred unlock", Flaw: "a holder that dies leaves the lock for ever", Sound: true,
		DieAt: StepLocked,
		New:   func(env Env) (Strategy, error) { return &setNXDefer{counter{env}}, nil },
	}
}

// Claim sells under the lock and releases it however the claim ends, unless the process ends first.
func (s *setNXDefer) Claim(ctx context.Context, user string) (outcome Outcome, err error) {
	had, err := s.acquire(ctx, s.trySetNX)
	if err != nil || !had {
		return Busy, err
	}
	defer give(ctx, &err, s.drop)
	if err := s.at(StepLocked); err != nil {
		return 0, err
	}
	return s.sell(ctx, user)
}
