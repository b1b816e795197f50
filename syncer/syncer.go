package syncer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"dibs/internal/pulse"
	"dibs/internal/sleep"
	"dibs/syncer/compare"
	"dibs/syncer/lots"
	"dibs/syncer/resolve"
	"dibs/syncer/retention"
	"dibs/syncer/shards"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

const (
	roundTimeout = 100 * time.Second // of one round of a job
	warnEvery    = 30 * time.Second  // between two logs of a lasting failure
	// between two checks that writes can be read.
	readsEvery = 30 * time.Second
)

// Config has the parts of the syncer role. All are required.
type Config struct {
	Trimmer   *retention.Trimmer
	Pruner    *retention.Pruner
	Keeper    *lots.Keeper
	Comparer  *compare.Comparer
	Relay     *resolve.Relay
	Expirer   *resolve.Expirer
	Finalizer *resolve.Finalizer
	Mover     *shards.Mover
	// CheckReads checks that reads see writes, see sqlstore.CheckReads
	CheckReads func(ctx context.Context) error

	Leader    *Leader // Run runs it
	Logger    *slog.Logger
	Heartbeat *pulse.Heartbeat // gets a beat after each round of a job
}

// Syncer is the role that runs the jobs. Each is safe in several processes at
// once. A job of the leader would only repeat work elsewhere.
type Syncer struct{ cfg Config }

// New returns the role.
func New(cfg Config) *Syncer { return &Syncer{cfg: cfg} }

// job is work that is repeated in rounds.
type job struct {
	name   string
	every  time.Duration // the pause between two rounds
	leader bool          // only the leader runs it
	round  func(ctx context.Context) error
	// of a leader's job: runs instead in a
	// process that does not lead; nil is nothing
	following func()
}

func (s *Syncer) jobs() []job {
	c := &s.cfg
	const leader = true
	return []job{
		{name: "trim streams", every: time.Second, leader: !leader, round: quiet(c.Trimmer.Trim), following: nil},
		{name: "keep lots", every: time.Second, leader: leader, round: c.Keeper.Keep, following: c.Keeper.ResetMetrics},
		{
			name: "compare", every: 2 * time.Second, leader: leader, round: quiet(c.Comparer.Round),
			following: c.Comparer.ResetMetrics,
		},
		{name: "relay", every: 250 * time.Millisecond, leader: leader, round: quiet(c.Relay.Relay), following: c.Relay.ResetMetrics},
		{name: "prune", every: time.Minute, leader: leader, round: quiet(c.Pruner.Prune), following: nil},
		{name: "expire", every: time.Second, leader: leader, round: s.expire, following: c.Expirer.ResetMetrics},
		{name: "finalize", every: time.Second, leader: leader, round: s.finalize, following: nil},
		{name: "read back what was written", every: readsEvery, leader: leader, round: c.CheckReads, following: nil},
		{name: "check shards", every: time.Second, leader: leader, round: quiet(c.Mover.Check), following: c.Mover.ResetMetrics},
	}
}

// Run runs the jobs until ctx ends and then returns nil. A round that
// fails is logged, and the next one tries again.
func (s *Syncer) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return s.cfg.Leader.Run(ctx) })
	for _, j := range s.jobs() {
		g.Go(func() error {
			s.repeat(ctx, &j)
			return nil
		})
	}
	return g.Wait()
}

func (s *Syncer) repeat(ctx context.Context, j *job) {
	warn := rate.Sometimes{First: 1, Interval: warnEvery}
	for ctx.Err() == nil {
		if err := s.once(ctx, j); err != nil && ctx.Err() == nil {
			warn.Do(func() {
				s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "a job of the syncer failed, it is tried again",
					slog.String("job", j.name), slog.Any("error", err))
			})
		}
		s.cfg.Heartbeat.Beat("job "+j.name, j.every+2*roundTimeout)
		_ = sleep.For(ctx, j.every) // the loop checks ctx
	}
}

// once runs one round of a job, or following if another process leads.
func (s *Syncer) once(ctx context.Context, j *job) error {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	if !j.leader {
		return j.round(ctx)
	}
	led, err := s.cfg.Leader.Do(ctx, j.round)
	if !led && j.following != nil {
		j.following()
	}
	return err
}

func quiet[N any](round func(ctx context.Context) (N, error)) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := round(ctx)
		return err
	}
}

func (s *Syncer) finalize(ctx context.Context) error {
	n, err := s.cfg.Finalizer.Finalize(ctx)
	if n > 0 {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "ended closed campaigns", slog.Int("campaigns", n))
	}
	return err
}

// expire ignores a timeout after some progress: the next round continues.
func (s *Syncer) expire(ctx context.Context) error {
	n, err := s.cfg.Expirer.Expire(ctx)
	if n > 0 {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "released claims that no one redeemed in time", slog.Int("claims", n))
	}
	if n > 0 && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
