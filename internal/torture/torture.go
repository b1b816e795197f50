package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dibs/lua"
	"dibs/models"
)

var (
	// ErrOptions is wrapped by refusals of Options.
	ErrOptions = errors.New("torture: bad options")
	// errBroken says that a promise of Dibs did not hold. Any other error is one of the kit or of the machine.
	errBroken = errors.New("torture: an invariant does not hold")
)

// healWithin is how long Dibs may take to be whole again once all faults are over.
const healWithin = time.Minute

// Options say what to do to which Dibs.
type Options struct {
	Binary     string // the dibs to torture. Required
	Seed       uint64
	For        time.Duration // no round begins after this; 0: only Faults ends the run
	Faults     int           // or after so many; 0: only For ends the run
	Pairs      bool          // or when every pair of features and faults was covered that can be
	Round      int           // the first round, to repeat one; 0 is the first
	Topology   string        // Alone, Sentinel or Cluster; "": Alone
	Durability lua.Durability
	Shards     int               // of the campaigns that have several; 0: 1, none has
	Serve      bool              // processes of all roles, two of them, instead of two of each
	Only       []string          // names of faults; nil: all
	Lossless   bool              // no fault that may lose an answered claim
	Progress   func(line string) // told what happens; nil: no one
}

func (o *Options) check() error {
	switch {
	case o.Binary == "":
		return fmt.Errorf("%w: Binary is missing", ErrOptions)
	case o.For <= 0 && o.Faults <= 0 && !o.Pairs:
		return fmt.Errorf("%w: one of For and Faults must be above 0, or Pairs be set", ErrOptions)
	case o.Round < 0 || o.Faults < 0:
		return fmt.Errorf("%w: Round and Faults must not be below 0", ErrOptions)
	case o.Topology != Alone && o.Topology != Sentinel && o.Topology != Cluster:
		return fmt.Errorf("%w: no topology %q; there are %s, %s and %s", ErrOptions, o.Topology, Alone, Sentinel, Cluster)
	case o.Shards < 0 || o.Shards > models.ShardsMax:
		return fmt.Errorf("%w: Shards must be 1 to %d", ErrOptions, models.ShardsMax)
	case o.Durability.Replicas > 0 && o.Topology == Alone, o.Durability.Replicas > 1:
		return fmt.Errorf("%w: durability %s: each primary has one replica, a Redis alone has none", ErrOptions, o.Durability)
	}
	return nil
}

// Run tortures a Dibs until the time is up, enough faults have happened, or a promise did not hold: see Report.Broken. The error is one
// of the kit or of the machine.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Topology == "" {
		o.Topology = Alone
	}
	o.Shards = max(1, o.Shards)
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	begun := time.Now()
	w, err := newWorld(ctx, &o)
	if err != nil {
		return nil, err
	}
	rep := &Report{Seed: o.Seed, Topology: o.Topology, Durability: o.Durability.String(), Shards: o.Shards, Serve: o.Serve, Broken: []string{}}
	err = w.runRounds(ctx, rep)
	rep.TookMs = time.Since(begun).Milliseconds()
	return rep, errors.Join(err, w.close())
}

// runRounds goes on until the options or a broken promise end it.
func (w *world) runRounds(ctx context.Context, rep *Report) error {
	chosen, skipped, err := w.choose()
	if err != nil {
		return err
	}
	rep.Skipped = skipped
	p := newPlanner(w.opt, chosen)
	rep.covered = pairs{}
	defer func() { rep.pairsOf(p) }()
	for n := range w.opt.Round {
		p.plan(n, strokesARound)
	}
	begun := time.Now()
	for n := w.opt.Round; len(rep.Broken) == 0; n++ {
		left := strokesARound
		if w.opt.Faults > 0 {
			left = min(left, w.opt.Faults-len(rep.Faults))
		}
		if w.opt.For > 0 && time.Since(begun) >= w.opt.For || left <= 0 || w.opt.Pairs && len(rep.covered.without(p.table)) == 0 {
			return nil
		}
		rd := &round{w: w, n: n, begun: begun, report: rep, plan: p.plan(n, left), covered: pairs{}, gauge: &gauge{}}
		if err := rd.run(ctx); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("torture: %w", context.Cause(ctx))
			}
			if !errors.Is(err, errBroken) {
				return fmt.Errorf("round %d: %w", n, err)
			}
			rd.brokenf("%v", err)
		}
	}
	return nil
}
