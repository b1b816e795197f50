package trials

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"dibs/cmd"
	"dibs/internal/config"
	"dibs/internal/printer"
	"dibs/internal/testkit/testenv"
	"dibs/proof/torture"

	"github.com/spf13/cobra"
)

// ErrTortured means that a promise was violated under faults.
var ErrTortured = errors.New("trials: an invariant does not hold")

// ErrPairs means that a run ended before it had covered every pair.
var ErrPairs = errors.New("trials: pairs of features and faults were not covered")

// pairsWithin limits a run that must cover every pair.
const pairsWithin = 4 * time.Hour

// tortureRun holds the flags of `dibs torture`.
type tortureRun struct {
	options torture.Options
	json    bool
	list    bool
}

func newTorture(env cmd.Env) *cobra.Command { //nolint:funlen // its help is long
	t := tortureRun{}
	var c *cobra.Command
	c = cmd.Command(env, cobra.Command{
		Use:   "torture",
		Short: "Make faults happen to a whole Dibs of its own, at random by a seed, and check every claim afterwards",
		Long: `Starts a Redis (alone, with a replica and three Sentinels, or a cluster of six) and a
MariaDB or MySQL from PATH, two API processes, two consumers, two syncers and a finance
service. Clients claim with idempotency keys, redeem and release, an operator restocks,
pauses and adds packets, while processes are killed and paused, wires cut and slowed, and
servers killed, filled, flushed, restored and locked.

A run is rounds of forty faults: mostly one by itself, and in every third scenario one
after the other on processes, wires, Redis and the SQL server at the same time. What the
campaigns of a round are like (kind, limits, holds, shards, waves, archive and so on),
which of them get a rush of claims, few or none, and which faults befall them is drawn:
pairs of a feature and a fault, and of two features, that the run did not have yet come
first. The report says which pairs were covered and which were not; --pairs goes on until
every one was.

After each round everything is healed, what is left is sold, and the invariants of
docs/invariants.md are checked claim by claim: each yes has one row and each row was asked
for, no seq twice and no hole, no unit too many and none stranded, limits, times, cents,
nothing parked; seqs in keeping with when claims were asked for and answered; 'dibs
reconcile' ends with 0. In every third round faults may happen that lose answered claims
(a flushed Redis, one that was restored, with --durability fast a killed one); a claim
that is missing then has to be explained by one of these. docs/reliability.md says what is
promised under which fault.

It needs nothing but the server programs, and touches no server of yours. One line a
fault; the seed repeats the faults, though not how they interleave. Exit code 1 with the
seed and the reason when an invariant does not hold.`,
		Example: `  dibs torture                                            five minutes, a seed drawn for you
  dibs torture --seed 7 --for 1h --durability fsync
  dibs torture --topology cluster --faults 100 --json > report.json
  dibs torture --topology cluster --shards 1               no campaign of several shards
  dibs torture --pairs                                    until every pair was covered
  dibs torture --only 'kill redis,cut a wire' --list`,
	}, func(ctx context.Context, _ *cobra.Command, cfg *config.Config) error {
		if !c.Flags().Changed("seed") {
			t.options.Seed = rand.Uint64N(1_000_000) //nolint:gosec // no secret
		}
		if !c.Flags().Changed("for") {
			switch {
			case t.options.Faults > 0:
				t.options.For = 0
			case t.options.Pairs:
				t.options.For = pairsWithin
			}
		}
		t.options.Durability = cfg.Durability
		return t.run(ctx, env)
	})
	flags := c.Flags()
	flags.Uint64Var(&t.options.Seed, "seed", 0, "which faults happen when; drawn when not set")
	flags.DurationVar(&t.options.For, "for", 5*time.Minute, "no round begins after this")
	flags.IntVar(&t.options.Faults, "faults", 0, "end after so many faults; 0: as --for says")
	flags.IntVar(&t.options.Round, "round", 0, "the first round, to repeat one")
	flags.StringVar(&t.options.Topology, "topology", torture.Alone, "of Redis: "+torture.Alone+", "+torture.Sentinel+" or "+torture.Cluster)
	flags.BoolVar(&t.options.Pairs, "pairs", false,
		"end when every pair was covered; failing if one is not after --for, "+pairsWithin.String()+" when not set")
	flags.IntVar(&t.options.Shards, "shards", 4, "of the campaigns that are drawn to have several")
	flags.BoolVar(&t.options.Serve, "serve", false, "two processes that are API, consumer and syncer each, instead of two of each")
	flags.StringSliceVar(&t.options.Only, "only", nil, "names of faults, comma-separated; all when not set")
	flags.BoolVar(&t.options.Lossless, "lossless", false, "no fault that may lose an answered claim")
	flags.StringVar(&t.options.Binary, "binary", "", "another dibs to torture; empty: this one")
	flags.BoolVar(&t.json, "json", false, "print the report as JSON")
	flags.BoolVar(&t.list, "list", false, "list the faults and do nothing")
	return c
}

func (t *tortureRun) run(ctx context.Context, env cmd.Env) error {
	if t.list {
		_, err := fmt.Fprintln(env.Stdout, strings.Join(torture.Names(), "\n"))
		return err
	}
	t.options.KeepLogs = true
	if t.options.Binary == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("trials: %w", err)
		}
		t.options.Binary = self
	}
	t.options.Progress = func(line string) { _, _ = fmt.Fprintln(env.Stderr, line) }
	t.options.Progress(fmt.Sprintf("seed %d, Redis %s, durability %s", t.options.Seed, t.options.Topology, t.options.Durability))
	defer testenv.Close()
	report, err := torture.Run(ctx, t.options)
	if errors.Is(err, torture.ErrOptions) {
		return fmt.Errorf("%w: %w", cmd.ErrUsage, err)
	}
	if report == nil {
		return err
	}
	if t.json {
		err = errors.Join(err, json.NewEncoder(env.Stdout).Encode(report))
	} else {
		printTorture(env.Stdout, report)
	}
	if len(report.Broken) > 0 {
		err = errors.Join(fmt.Errorf("%w: seed %d, topology %s, durability %s: %s", ErrTortured, report.Seed, report.Topology, report.Durability,
			report.Broken[0]), err)
	}
	if t.options.Pairs && len(report.Missing) > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d", ErrPairs, len(report.Missing)))
	}
	return err
}

// printTorture prints the counts, and last what this machine could not do.
func printTorture(w io.Writer, r *torture.Report) {
	_, _ = fmt.Fprintf(w, "seed %d, Redis %s, durability %s: %d faults in %d rounds and %s, %.1f a minute\n", r.Seed,
		r.Topology, r.Durability, len(r.Faults), r.Rounds, (time.Duration(r.TookMs) * time.Millisecond).Round(time.Second),
		float64(len(r.Faults))/(time.Duration(max(r.TookMs, 1))*time.Millisecond).Minutes())
	_, _ = fmt.Fprintf(w, "%s claims have a row, %s were answered; of these %s were lost by faults that may (%d of %d rounds had one)\n",
		printer.Number(r.Claims), printer.Number(r.Answered), printer.Number(r.Lost), r.Lossy, r.Rounds)
	_, _ = fmt.Fprintf(w, "%s seqs given up by repairs, %s credits of claims that were lost,"+
		" %s claims without credit; books read %s times\n", printer.Number(r.GivenUp), printer.Number(r.Ghosts), printer.Number(r.Uncredited),
		printer.Number(r.BooksRead))
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	_, _ = fmt.Fprintf(w, "APIs said not ready for %s, %s of that while claims were served; %d processes ended by themselves\n",
		ms(r.UnreadyMs), ms(r.UnreadyWrongMs), r.Exits)
	if r.Void > 0 {
		_, _ = fmt.Fprintf(w, "%d rounds were not checked, because a server failed by itself\n", r.Void)
	}
	_, _ = fmt.Fprintf(w, "%d of %d pairs were covered\n", len(r.Covered), len(r.Covered)+len(r.Missing))
	for _, line := range r.MissingByFeature() {
		_, _ = fmt.Fprintln(w, "NOT COVERED: "+line)
	}
	for _, line := range slices.Concat(r.Never, r.Skipped) {
		_, _ = fmt.Fprintln(w, "NOT DONE: "+line)
	}
	for _, line := range r.Broken {
		_, _ = fmt.Fprintln(w, "BROKEN: "+line)
	}
	if len(r.Broken) == 0 {
		_, _ = fmt.Fprintln(w, "every invariant held")
	}
}
