package torture

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

// everyday are short runs, one of each topology and mode. A seed is chosen by
// its features: together they have all, and each of shards, packets and holds
// meets a loss.
var everyday = map[string]Options{
	"what loses nothing": {Seed: 2, Faults: 7, Durability: lua.Fsync, Only: []string{
		"kill webhooks", "pause webhooks", "kill api", "kill consumer", "kill redis", "cut a wire", "spoil a wire", "flush scripts",
		"redis is full", "sql kills connections", "delete a key",
	}},
	"Redis and MySQL lose data": {Seed: 2814, Faults: 3, Shards: 4, Only: []string{
		"flush redis", "roll back redis", "kill redis", "roll back sql",
	}},
	"Redis loses data, and MySQL answers": {Seed: 45, Faults: 2, Shards: 4, Durability: lua.MySQL, Only: []string{
		"flush redis", "roll back redis", "kill redis",
	}},
	"a cluster": {Seed: 6, Faults: 2, Shards: 4, Topology: Cluster, Durability: lua.MySQL, Only: []string{
		"kill primary", "slots move", "planned failover",
	}},
	"Sentinels": {Seed: 15, Faults: 1, Topology: Sentinel, Only: []string{"kill primary", "pause primary"}},
}

// A whole Dibs under a few faults must keep every promise. The long form runs
// until every pair of features and faults was covered, on each topology and
// in each mode, for at most four hours.
func TestPromisesUnderFaults(t *testing.T) {
	t.Parallel()
	binary := build(t)
	if !testenv.Soak() {
		for name, o := range everyday {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				o.Binary = binary
				o.KeepLogs = true
				report := torture(t, o)
				require.Empty(t, report.Broken)
				require.Positive(t, report.Claims)
			})
		}
		return
	}
	runs := pairRuns()
	for _, o := range runs {
		t.Run(fmt.Sprintf("%s %s", o.Topology, o.Durability), func(t *testing.T) {
			o.Binary = binary
			o.Seed = 7
			o.For = pairsWithin / time.Duration(len(runs))
			report := torture(t, o)
			require.Empty(t, report.Broken)
			require.Empty(t, report.Missing)
			t.Logf("%d pairs in %d rounds and %s", len(report.Covered), report.Rounds, ms(report.TookMs))
		})
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	good := Options{Binary: "dibs", Faults: 1, Topology: Alone}
	require.NoError(t, good.check())
	for name, bad := range map[string]func(o *Options){
		"no binary":     func(o *Options) { o.Binary = "" },
		"no end":        func(o *Options) { o.Faults = 0 },
		"no topology":   func(o *Options) { o.Topology = "ring" },
		"a round below": func(o *Options) { o.Round = -1 },
		"many shards":   func(o *Options) { o.Shards = 65 },
	} {
		o := good
		bad(&o)
		require.ErrorIs(t, o.check(), ErrOptions, name)
	}
	_, _, err := (&world{opt: &Options{Only: []string{"rain"}}}).choose()
	require.ErrorIs(t, err, ErrOptions)
	require.ErrorContains(t, err, "rain")
}
