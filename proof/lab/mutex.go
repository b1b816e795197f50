package lab

import (
	"context"
	"sync"
)

// mutex is read-then-write under a lock of this process.
type mutex struct {
	counter

	mu sync.Mutex
}

func mutexStrategy() Entry {
	return Entry{
		Name: "mutex", Title: "in-process mutex", Flaw: "a second process has a mutex of its own", DieAt: StepRead,
		New: func(env Env) (Strategy, error) { return &mutex{counter: counter{env}}, nil },
	}
}

// Claim sells one at a time, in this process.
func (s *mutex) Claim(ctx context.Context, user string) (Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sell(ctx, user)
}
