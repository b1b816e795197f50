package lab

import "context"

// Internals for the tests.
var (
	OpenEnv   = openEnv
	KeyOfLock = func(e Env) string { return e.lockKey() }
	KeyOf     = func(e Env, what string) string { return e.key(what) }
	ErrKilled = errKilled
	ResultOf  = newResult
)

// Elsewhere claims for a user in another process, which kills
// itself at dieAt. It returns the replies by outcome.
func Elsewhere(
	ctx context.Context, self Self, entry string, env Env, dieAt Step, user string,
) (map[Outcome]int64, error) {
	env.Connections = 1
	answers, err := work(ctx, self, order{
		Servers: env.Servers, Terms: env.Terms, Strategy: entry, Of: 1, SQLPool: 1, DieAt: dieAt,
		Users: 1, Asks: 1, AtMost: sellOutMax, Prefix: user,
	})
	return answers[0].Outcomes, err
}

// Compare fills in the ratios.
func (r *Report) Compare() { r.compare() }

// WithLock sets the lock left by a killed claimer in a round.
func (r Round) WithLock(lock string) Round {
	r.lock = lock
	return r
}
