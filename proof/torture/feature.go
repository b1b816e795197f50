package torture

import (
	"fmt"
	"slices"
	"time"
)

// Features of a campaign, or of an operator's actions on it during faults.
const (
	kindCoupon  = "coupon"  // claims of one unit each
	kindUnits   = "units"   // claims of up to three units
	kindPackets = "packets" // claims of an amount of money
	withLimits  = "limits"
	withHolds   = "holds"
	withShards  = "shards" // one of which gets no claims during a fault
	withWaves   = "waves"
	withFinance = "finance" // in the end its sender is credited with the rest
	// it is closed during faults, and `dibs archive` moves its claims.
	withArchive  = "archive"
	withEviction = "eviction" // it leaves Redis after half a second without claims
	withChanges  = "changes"  // of total, limits, status and times; of packets: more of them
	withRepair   = "repair"   // `dibs reconcile --repair`
	withUpgrade  = "upgrade"  // every process is restarted, as docs/guides/upgrade.md says
)

// kinds are exclusive: a campaign has one.
var kinds = []string{kindCoupon, kindUnits, kindPackets}

var features = []string{
	kindCoupon, kindUnits, kindPackets, withLimits, withHolds, withShards, withWaves, withFinance, withArchive, withEviction, withChanges,
	withRepair, withUpgrade,
}

var exclusions = []struct {
	these, those []string
	why          string
}{
	{kinds, kinds, "a campaign has one kind"},
	{[]string{withHolds}, []string{kindPackets, withWaves, withFinance}, "the API refuses a hold of packets"},
	{[]string{kindCoupon, kindUnits}, []string{withWaves, withFinance}, "only packets have waves and are credited"},
}

// excluded says why features can't be combined; "" means they can.
func excluded(a, b string) string {
	for _, e := range exclusions {
		if slices.Contains(e.these, a) && slices.Contains(e.those, b) || slices.Contains(e.these, b) && slices.Contains(e.those, a) {
			return e.why
		}
	}
	return ""
}

// pair is a feature, and a fault or another feature of the same campaign.
type pair struct{ feature, other string }

const times = " × "

func (p pair) String() string { return p.feature + times + p.other }

type pairs map[pair]bool

func (p pairs) addFeatures(of []string) {
	for i, a := range features {
		for _, b := range features[i+1:] {
			if slices.Contains(of, a) && slices.Contains(of, b) {
				p[pair{a, b}] = true
			}
		}
	}
}

func (p pairs) addFault(fault string, of []string) {
	for _, f := range of {
		p[pair{f, fault}] = true
	}
}

// without lists a table's pairs missing in the set.
func (p pairs) without(table []pair) []pair {
	return slices.DeleteFunc(slices.Clone(table), func(one pair) bool { return p[one] })
}

// pairTable lists the pairs that a run with these faults can
// cover, and why others can't be.
func pairTable(o *Options, chosen []*fault) (table []pair, never []string) {
	mine := features
	if o.Shards <= 1 {
		mine = slices.DeleteFunc(slices.Clone(features), func(f string) bool { return f == withShards })
		never = append(never, withShards+" × everything: --shards is 1")
	}
	for i, a := range mine {
		for _, b := range mine[i+1:] {
			if why := excluded(a, b); why != "" {
				never = append(never, fmt.Sprintf("%v: %s", pair{a, b}, why))
			} else {
				table = append(table, pair{a, b})
			}
		}
		for _, f := range chosen {
			table = append(table, pair{a, f.name})
		}
	}
	return table, never
}

// acting records the start of an operator's use of a feature;
// the function it returns records the end.
func (c *campaign) acting(feature string) (done func()) {
	note := func(till time.Time) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.acted == nil {
			c.acted = map[string]time.Time{}
		}
		c.acted[feature] = till
	}
	note(time.Now().Add(24 * time.Hour)) // not over
	return func() { note(time.Now()) }
}

// had lists a campaign's features at some time since then; an
// operator's count while used.
func (c *campaign) had(since time.Time) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.features), func(f string) bool {
		if slices.Contains([]string{withArchive, withEviction, withChanges, withRepair, withUpgrade}, f) {
			return !c.acted[f].After(since)
		}
		return c.closing.Load() && !since.IsZero() // it takes no more claims
	})
}

func (rd *round) cover(b *scenario) {
	for _, c := range rd.campaigns {
		had := c.had(b.started)
		for _, lane := range b.lanes {
			for _, s := range lane {
				if !s.started.IsZero() {
					rd.covered.addFault(s.name, had)
				}
			}
		}
	}
}
