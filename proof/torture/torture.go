package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

var (
	// ErrOptions is wrapped by every refusal of Options.
	ErrOptions = errors.New("torture: bad options")
	// errBroken means that a promise of Dibs was violated. Any other
	// error is the kit's or the machine's.
	errBroken = errors.New("torture: an invariant does not hold")
)

// healWithin limits Dibs' recovery once all faults are over.
const healWithin = time.Minute

// Options configure a run.
type Options struct {
	Binary     string // the dibs program. Required
	Seed       uint64
	For        time.Duration // no round starts later; 0: only Faults ends the run
	Faults     int           // or after so many; 0: only For ends the run
	Pairs      bool          // or once every possible pair of features and faults was covered
	Round      int           // the first round, to repeat one; 0 is the first
	Topology   string        // Alone, Sentinel or Cluster; "": Alone
	Durability lua.Durability
	Shards     int      // of sharded campaigns; 0: 1, none is sharded
	Serve      bool     // two processes with all roles, instead of two of each
	Only       []string // names of faults; nil: all
	Lossless   bool     // no fault that may lose an answered claim
	// after a violation, keep the processes' logs, in a folder that
	// Progress names
	KeepLogs bool
	Progress func(line string) // gets each line; nil: none
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
	}
	return nil
}

// Run tortures a Dibs until the time is up, enough faults
// happened, or a promise was violated: see Report.Broken. An
// error is the kit's or the machine's.
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
	r := &run{opt: &o, started: time.Now(), n: o.Round}
	r.report = &Report{
		Seed: o.Seed, Topology: o.Topology, Durability: o.Durability.String(), Shards: o.Shards, Serve: o.Serve, Broken: []string{},
	}
	started, err := r.inWorld(ctx)
	for errors.Is(err, testenv.ErrServer) && started && r.report.Void < maxVoid {
		r.report.Void++
		r.report.Broken = []string{} // rows that the server lost
		r.n++
		o.Progress(fmt.Sprintf("VOID %v", err))
		started, err = r.inWorld(ctx)
	}
	if r.planner == nil {
		return nil, err
	}
	r.report.pairsOf(r.planner)
	r.report.TookMs = time.Since(r.started).Milliseconds()
	return r.report, err
}

// maxVoid limits the rounds voided by a failed server of the
// kit; each costs new servers.
const maxVoid = 10

type run struct {
	opt     *Options
	started time.Time
	n       int      // the round
	planner *planner // nil: no world was started
	report  *Report
}

// inWorld starts a world, and runs rounds until the options, a
// violation or a failure ends it.
func (r *run) inWorld(ctx context.Context) (started bool, err error) {
	w, err := newWorld(ctx, r.opt)
	if err != nil {
		return false, err
	}
	if r.planner == nil {
		err = r.prepare(w)
	}
	if err == nil {
		err = r.rounds(ctx, w)
	}
	if len(r.report.Broken) > 0 && r.opt.KeepLogs {
		w.keepLogs()
	}
	return true, errors.Join(err, w.Close())
}

// keepLogs copies the processes' logs to a permanent folder.
func (w *world) keepLogs() {
	folder, err := os.MkdirTemp("", "dibs-torture-logs-")
	if err == nil {
		err = os.CopyFS(folder, os.DirFS(filepath.Dir(w.parts[0].log)))
	}
	if err != nil {
		w.opt.Progress("the logs of the processes are lost: " + err.Error())
		return
	}
	w.opt.Progress("the logs of the processes are in " + folder)
}

// prepare draws the rounds before the first one.
func (r *run) prepare(w *world) error {
	chosen, skipped, err := w.choose()
	if err != nil {
		return err
	}
	r.report.Skipped = skipped
	r.report.covered = pairs{}
	r.planner = newPlanner(w.opt, chosen)
	for n := range r.n {
		r.planner.plan(n, faultsARound)
	}
	return nil
}

func (r *run) rounds(ctx context.Context, w *world) error {
	for ; len(r.report.Broken) == 0; r.n++ {
		left := faultsARound
		if r.opt.Faults > 0 {
			left = min(left, r.opt.Faults-len(r.report.Faults))
		}
		if r.opt.For > 0 && time.Since(r.started) >= r.opt.For || left <= 0 ||
			r.opt.Pairs && len(r.report.covered.without(r.planner.table)) == 0 {
			return nil
		}
		rd := &round{w: w, n: r.n, started: r.started, report: r.report, plan: r.planner.plan(r.n, left), covered: pairs{}, gauge: &gauge{}}
		if err := rd.run(ctx); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("torture: %w", context.Cause(ctx))
			}
			if !errors.Is(err, errBroken) {
				return fmt.Errorf("round %d: %w", r.n, err)
			}
			rd.brokenf("%v", err)
		}
	}
	return nil
}
