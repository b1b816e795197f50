package lab

import "context"

// Words of the inside for the tests.
var (
	OpenEnv   = openEnv
	KeyOfLock = func(e Env) string { return e.lockKey() }
	KeyOf     = func(e Env, what string) string { return e.key(what) }
	ErrKilled = errKilled
	ResultOf  = newResult
	Digits    = digits
	Whole     = whole
	Share     = share
)

// Elsewhere has a user claim in a process of its own, which kills itself when the claim comes to
// dieAt. It returns what the user was told, by outcome.
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

// NewLease is the watchdog's lock, of an owner.
func NewLease(e Env, key, owner string) *Lease {
	return &lease{rdb: e.Redis, key: e.key(key), owner: owner, lasts: e.Lease}
}

// Lease is the watchdog's lock.
type Lease = lease

// Try takes the lock.
func (l *lease) Try(ctx context.Context) (bool, error) { return l.try(ctx) }

// GiveBack gives back one taking.
func (l *lease) GiveBack(ctx context.Context) error { return l.giveBack(ctx) }

// Compare fills in the ratios.
func (r *Report) Compare() { r.compare() }

// WithLock says what a killed claimer left in a round.
func (r Round) WithLock(lock string) Round {
	r.lock = lock
	return r
}
