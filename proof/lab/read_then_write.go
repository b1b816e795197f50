package lab

import "context"

// readThenWrite is the naive counter: whoever reads 1 sells 1, however many read it.
type readThenWrite struct{ counter }

func readThenWriteStrategy() Entry {
	return Entry{
		Name: "read-then-write", Title: "read, then write", Flaw: "two who read the same stock both sell it", DieAt: StepRead,
		New: func(env Env) (Strategy, error) { return &readThenWrite{counter{env}}, nil },
	}
}

// Claim reads the stock, decides, and writes one less.
func (s *readThenWrite) Claim(ctx context.Context, user string) (Outcome, error) {
	return s.sell(ctx, user)
}
