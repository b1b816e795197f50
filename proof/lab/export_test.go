package lab

import "context"

// Words of the inside for the tests.
var (
	OpenEnv   = openEnv
	KeyOfLock = func(e Env) string { return e.lockKey() }
	KeyOf     = func(e Env, what string) string { return e.key(what) }
	ErrKilled = errKilled
	ResultOf  = newResult
)

// Elsewhere has a user claim in a process of its own, which kills itself when
// the claim comes to dieAt. It returns what the user was told, by outcome.
func Elsewhere(
	ctx context.Context, self Self, entry string, env Env, dieAt Step, user string,
) (map[Outcome]int64, error) {
	env.Connections = 1
	answers, err := work(ctx, self, order{
		Place: env.Place, Terms: env.Terms, Strategy: entry, Of: 1, SQLPool: 1, DieAt: dieAt,
		Users: 1, Asks: 1, AtMost: sellOutMax, Prefix: user,
	})
	return answers[0].Outcomes, err
}

// Compare fills in the ratios.
func (r *Report) Compare() { r.compare() }

// WithLock says what a killed claimer left in a round.
func (r Round) WithLock(lock string) Round {
	r.lock = lock
	return r
}
