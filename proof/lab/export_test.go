package lab

import "context"

// Words of the inside for the tests.
var (
	OpenEnv   = openEnv
	NewWire   = newWire
	NewLease  = newLease
	KeyOfLock = func(e Env) string { return e.lockKey() }
	KeyOf     = func(e Env, what string) string { return e.key(what) }
)

// Lease is the watchdog's lock.
type Lease = lease

// TryTake takes the lock for an owner.
func (l *lease) TryTake(ctx context.Context, owner string) (bool, error) {
	return l.tryTake(ctx, owner)
}

// GiveBack gives back one taking.
func (l *lease) GiveBack(ctx context.Context, owner string) error { return l.giveBack(ctx, owner) }

// Other is a worker process with one claimer.
type Other struct {
	pool    pool
	opening opening
}

// StartOther starts a worker process for a strategy and a campaign, which kills itself when a claim comes to dieAt.
func StartOther(ctx context.Context, self Self, entry string, env Env, dieAt Step) (*Other, error) {
	c, err := startPool(self, 1)
	if err != nil {
		return nil, err
	}
	o := opening{
		Place: env.Place, Strategy: entry, Campaign: env.Campaign, Of: 1, Claimers: 1, SQLPool: 1,
		Patience: env.Patience, Lease: env.Lease, DieAt: dieAt,
	}
	_, err = c.send(ctx, func(int) order { return order{Open: &o} })
	return &Other{pool: c, opening: o}, err
}

// Claim has the process ask once and returns what users were told, by outcome. ErrWorker: it died of it.
func (o *Other) Claim(ctx context.Context, user string) (map[string]int64, error) {
	answers, err := o.pool.send(ctx, func(int) order {
		return order{Load: &load{Users: 1, Asks: 1, AtMost: sellOutMax, Prefix: user}}
	})
	if err != nil {
		return nil, err
	}
	return answers[0].Outcomes, nil
}

// Dismiss ends the process.
func (o *Other) Dismiss() error { return o.pool.stop() }

// ErrWorker says that a worker process died.
var ErrWorker = errWorker

// OwnServers starts both servers.
func OwnServers(ctx context.Context) (place Place, closeAll func() error, err error) {
	s, err := openServers(ctx, Place{})
	if err != nil {
		return Place{}, nil, err
	}
	return s.place, s.Close, nil
}

// Post sends one claim over a wire.
func (w *wire) Post(ctx context.Context, path, key string, body []byte) (int, []byte, error) {
	return w.post(ctx, path, key, body)
}

// Close closes a wire.
func (w *wire) Close() { w.close() }

// Compare fills in the ratios.
func (r *Report) Compare() { r.compare() }

// ResultOf sums up rounds.
var ResultOf = newResult

// How figures are written, and what processes share.
var (
	Digits = digits
	Whole  = whole
	Share  = share
)
