package lab_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/proof/lab"
)

// longEnough is the patience of claims that should succeed on a
// busy machine, and of waits for a signal.
const longEnough = time.Minute

// shortly is the patience of claims that should not.
const shortly = 200 * time.Millisecond

// bench is a campaign on real servers, for one strategy.
type bench struct {
	t     *testing.T
	entry lab.Entry
	env   lab.Env
}

// newBench prepares a campaign, one unit per user, on the tests'
// shared servers.
func newBench(t *testing.T, entry string, units int64) *bench {
	t.Helper()
	return newBenchAt(t, entry, units, lab.Servers{RedisURL: testenv.SharedRedis(t).URL(), MySQLDSN: testenv.Database(t).DSN})
}

func newBenchAt(t *testing.T, entry string, units int64, servers lab.Servers) *bench {
	t.Helper()
	r, ok := lab.StrategyNamed(entry)
	require.True(t, ok, entry)
	env, closeEnv, err := lab.OpenEnv(servers, lab.Terms{
		Campaign: lab.Campaign{ID: testenv.UniqueID(t, "lab"), Units: units}, Connections: 8, Patience: longEnough,
		RetryPause: 10 * time.Millisecond, Lease: lab.DefaultLease,
	}, 8)
	require.NoError(t, err)
	t.Cleanup(closeEnv)
	env.Self = self
	b := &bench{t: t, entry: r, env: env}
	if r.Serve != nil {
		endpoint, stop, err := r.Serve(t.Context(), env)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, stop()) })
		b.env.Endpoint = endpoint
	}
	require.NoError(t, b.claimer().Prepare(t.Context()))
	return b
}

// claimer is another Strategy on the bench's campaign, like that
// of another process.
func (b *bench) claimer(changes ...func(*lab.Env)) lab.Strategy {
	b.t.Helper()
	env := b.env
	for _, change := range changes {
		change(&env)
	}
	s, err := b.entry.New(env)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, s.Close()) })
	return s
}

func patience(d time.Duration) func(*lab.Env) { return func(e *lab.Env) { e.Patience = d } }
func leased(d time.Duration) func(*lab.Env)   { return func(e *lab.Env) { e.Lease = d } }
func at(hook func(lab.Step) error) func(*lab.Env) {
	return func(e *lab.Env) { e.At = hook }
}

func (b *bench) claim(s lab.Strategy, user string) lab.Outcome {
	b.t.Helper()
	outcome, err := s.Claim(b.t.Context(), user)
	require.NoError(b.t, err)
	return outcome
}

// elsewhere claims for a user in another process, and returns
// the replies by outcome.
func (b *bench) elsewhere(user string) map[lab.Outcome]int64 {
	b.t.Helper()
	told, err := lab.Elsewhere(b.t.Context(), self, b.entry.Name, b.env, "", user)
	require.NoError(b.t, err)
	return told
}

func (b *bench) killed(dieAt lab.Step) {
	b.t.Helper()
	_, err := lab.Elsewhere(b.t.Context(), self, b.entry.Name, b.env, dieAt, "the-dead")
	require.ErrorIs(b.t, err, lab.ErrKilled)
}

// lock is the remaining time of the campaign's lock: -1 for
// ever, -2 there is none.
func (b *bench) lock() time.Duration {
	b.t.Helper()
	left, err := b.env.Redis.PTTL(b.t.Context(), lab.KeyOfLock(b.env)).Result()
	require.NoError(b.t, err)
	return left
}

func (b *bench) awaitNoLock() {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.lock() == -2 }, longEnough, 5*time.Millisecond)
}

func (b *bench) stock() int64 {
	b.t.Helper()
	n, err := b.env.Redis.Get(b.t.Context(), lab.KeyOf(b.env, "stock")).Int64()
	require.NoError(b.t, err)
	return n
}

func (b *bench) row() (n int64) {
	b.t.Helper()
	q := "SELECT remaining FROM lab_stock WHERE campaign_id = ?"
	if b.entry.Name == "skip-locked" {
		q = "SELECT COUNT(*) FROM lab_units WHERE campaign_id = ? AND user_id IS NULL"
	}
	require.NoError(b.t, b.env.DB.QueryRowContext(b.t.Context(), q, b.env.Campaign.ID).Scan(&n))
	return n
}

// gate stops the first claim at a step, until it is opened.
type gate struct {
	step    lab.Step
	first   sync.Once
	reached chan struct{}
	opened  chan struct{}
}

func newGate(step lab.Step) *gate {
	return &gate{step: step, reached: make(chan struct{}), opened: make(chan struct{})}
}

func (g *gate) at(step lab.Step) error {
	if step == g.step {
		g.first.Do(func() {
			close(g.reached)
			<-g.opened
		})
	}
	return nil
}

type verdict struct {
	outcome lab.Outcome
	err     error
}

// held starts a claim and returns when it waits at the gate.
func (b *bench) held(s lab.Strategy, g *gate, user string) <-chan verdict {
	b.t.Helper()
	came := b.background(s, user)
	wait(b.t, g.reached)
	return came
}

func (b *bench) background(s lab.Strategy, user string) <-chan verdict {
	came := make(chan verdict, 1)
	ctx := b.t.Context()
	go func() {
		outcome, err := s.Claim(ctx, user)
		came <- verdict{outcome, err}
	}()
	return came
}

func wait[T any](t *testing.T, signal <-chan T) T {
	t.Helper()
	select {
	case v := <-signal:
		return v
	case <-time.After(longEnough):
		require.Fail(t, "nothing happened")
		panic("unreachable")
	}
}
