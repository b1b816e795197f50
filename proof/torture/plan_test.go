package torture

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
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
	w := &world{opt: &o, disks: disks{sql: &testenv.Disk{}}}
	if o.Topology == Alone {
		w.clock = &testenv.Clock{}
		w.disks.redis = &testenv.Disk{}
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

func TestPlansAreRepeatedByTheirSeed(t *testing.T) {
	t.Parallel()
	drawn := func(seed uint64) (all []string) {
		p := plannerOf(t, Options{Topology: Alone, Shards: 4, Seed: seed})
		for n := range 3 {
			next := p.plan(n, faultsARound)
			for _, c := range next.casts {
				all = append(all, c.features...)
			}
			for _, b := range next.scenarios {
				for _, s := range slices.Concat(b.lanes...) {
					all = append(all, s.name+s.lasts.String())
				}
			}
		}
		return all
	}
	seven := drawn(7)
	require.Equal(t, seven, drawn(7))
	require.NotEqual(t, seven, drawn(8))
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

// A round that may restore MySQL must have a campaign of several
// shards, one of them quiet, and roll back by up to a minute.
func TestMySQLIsPutBackBehindShards(t *testing.T) {
	t.Parallel()
	p := plannerOf(t, Options{Topology: Cluster, Shards: 4})
	least := time.Hour
	most := time.Duration(0)
	for n := range 60 {
		next := p.plan(n, faultsARound)
		for _, b := range next.scenarios {
			for _, s := range slices.Concat(b.lanes...) {
				if s.undoes {
					require.Contains(t, next.featuresAt(0), withShards)
					least = min(least, s.lasts)
					most = max(most, s.lasts)
				}
			}
		}
	}
	require.Less(t, least, time.Second)
	require.Greater(t, most, 40*time.Second)
	c := campaign{shards: 4}
	require.False(t, c.rests("u"))
	c.still.Store(1)
	resting := 0
	for _, user := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		if c.rests(user) {
			resting++
		}
	}
	require.Positive(t, resting)
	require.Less(t, resting, 10)
}

// An operator's action must count for the concurrent faults
// only, and a closed campaign must not count.
func TestFeaturesCountWhileTheyAreInUse(t *testing.T) {
	t.Parallel()
	c := campaign{features: []string{kindUnits, withLimits, withRepair, withArchive, withUpgrade}}
	started := time.Now()
	c.acting(withUpgrade)()
	require.Equal(t, []string{kindUnits, withLimits, withUpgrade}, c.had(started))
	done := c.acting(withRepair)
	require.Equal(t, []string{kindUnits, withLimits, withRepair}, c.had(time.Now()))
	done()
	require.NotContains(t, c.had(time.Now()), withRepair)
	c.closing.Store(true)
	c.acting(withArchive)
	require.Equal(t, []string{withArchive}, c.had(time.Now()))
	require.Equal(t, c.features, c.had(time.Time{}))
}
