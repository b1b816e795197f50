package torture

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/machine"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

// pairsWithin limits the total time of the runs that cover every pair.
const pairsWithin = 4 * time.Hour

func pairRuns() []Options {
	return []Options{
		{Pairs: true, Shards: 4, Topology: Alone}, {Pairs: true, Shards: 4, Topology: Alone, Durability: lua.Fsync, Serve: true},
		{Pairs: true, Shards: 4, Topology: Sentinel}, {Pairs: true, Shards: 4, Topology: Cluster, Durability: lua.Fsync},
		{Pairs: true, Shards: 4, Topology: Cluster, Durability: lua.MySQL},
	}
}

// plannerOf is a planner for a machine that can do everything,
// without servers.
func plannerOf(t *testing.T, o Options) *planner {
	t.Helper()
	w := &world{opt: &o, disks: disks{sql: &machine.Disk{}}}
	if o.Topology == Alone {
		w.clock = &testenv.Clock{}
		w.disks.redis = &machine.Disk{}
	}
	chosen, _, err := w.choose()
	require.NoError(t, err)
	return newPlanner(w.opt, chosen)
}

// overhead is the approximate time of a round beside its faults:
// to open, recover, sell out, drain and check it.
const overhead = 30 * time.Second

// Each possible pair must be drawn within so many rounds, whatever the seed,
// and `make soak`'s runs must take less than four hours.
func TestEveryPairIsDrawn(t *testing.T) {
	t.Parallel()
	const roundsMost = 24
	sum := time.Duration(0)
	for _, o := range pairRuns() {
		longest := time.Duration(0)
		for seed := range uint64(testenv.Pick(3, 200)) {
			o.Seed = seed
			p := plannerOf(t, o)
			covered := pairs{}
			takes := time.Duration(0)
			rounds := 0
			for ; len(covered.without(p.table)) > 0; rounds++ {
				require.Less(t, rounds, roundsMost, "%s %s seed %d: %v", o.Topology, o.Durability, seed, covered.without(p.table))
				takes += overhead + coverAsPlanned(covered, p.plan(rounds, faultsARound)).lasts()
			}
			longest = max(longest, takes)
			if seed < 3 {
				t.Logf("%s %s seed %d: %d pairs in %d rounds and about %s", o.Topology, o.Durability, seed, len(p.table), rounds, takes.Round(time.Second))
			}
		}
		sum += longest
	}
	t.Logf("all runs: %s", sum)
	require.Less(t, sum, pairsWithin)
}

// coverAsPlanned adds a round's pairs as if everything happened as drawn.
func coverAsPlanned(covered pairs, p *plan) *plan {
	struck := 0
	for _, c := range p.casts {
		covered.addFeatures(c.features)
	}
	for _, b := range p.scenarios {
		with := p.featuresAt(struck)
		for _, s := range slices.Concat(b.lanes...) {
			covered.addFault(s.name, with)
			struck++
		}
	}
	return p
}

// A pair that no round covered must be named, and so must an
// impossible one, with the reason.
func TestPairsThatAreMissingAreNamed(t *testing.T) {
	t.Parallel()
	p := plannerOf(t, Options{Topology: Alone, Shards: 4})
	all := pairs{}
	for _, one := range p.table {
		all[one] = true
	}
	left := pair{withShards, "roll back sql far"}
	require.Contains(t, p.table, left)
	delete(all, left)
	report := Report{covered: all}
	report.pairsOf(p)
	require.Equal(t, []string{"shards × roll back sql far"}, report.Missing)
	require.Len(t, report.Covered, len(p.table)-1)
	require.Contains(t, report.Never, "packets × holds: the API refuses a hold of packets")

	p = plannerOf(t, Options{Topology: Alone, Shards: 1, Lossless: true})
	require.NotContains(t, p.table, left)
	require.Contains(t, p.never, "shards × everything: --shards is 1")
	require.False(t, slices.ContainsFunc(p.table, func(one pair) bool { return one.other == "flush redis" }))
}
