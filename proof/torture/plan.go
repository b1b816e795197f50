package torture

import (
	"math/rand/v2"
	"slices"
	"time"
)

// plan is a round, drawn before it starts, by the seed and the
// previous rounds' draws.
type plan struct {
	lossy     bool
	casts     []cast
	scenarios []*scenario
}

type cast struct {
	name     string
	users    int
	total    [2]int64 // units or packets, least and most
	lowAt    int64
	must     []string // features
	may      []string // features that may be drawn, beside eviction and upgrade
	features []string // drawn features
	claims   traffic
}

// traffic is how many claims a campaign gets during faults.
type traffic int

const (
	rush  traffic = iota
	quiet         // about one a second
	none
)

func (t traffic) String() string { return [...]string{"rush", "quiet", "no claims"}[t] }

// quietOneIn is the number of claims of a rush for one of a quiet campaign.
const quietOneIn = 60

func casts() []cast {
	return []cast{
		{name: "-limits", users: 60, total: [2]int64{100, 400}, lowAt: 10, must: []string{withLimits}, may: []string{
			withHolds, withShards, withArchive, withChanges, withRepair,
		}},
		{name: "-holds", users: 40, total: [2]int64{50, 200}, must: []string{withHolds}, may: []string{
			withLimits, withShards, withArchive, withChanges, withRepair,
		}},
		{name: "-packets", users: 4000, total: [2]int64{40, 200}, must: []string{kindPackets}, may: []string{
			withLimits, withShards, withWaves, withFinance, withArchive, withChanges, withRepair,
		}},
		{name: endless, users: 500, total: [2]int64{1_000_000, 1_000_000}, may: []string{withShards, withChanges, withRepair}},
	}
}

// planner draws plans. Its draws depend only on the options, the
// possible faults, and the round's number.
type planner struct {
	opt    *Options
	chosen []*fault
	table  []pair
	never  []string
	drawn  pairs
}

func newPlanner(o *Options, chosen []*fault) *planner {
	p := &planner{opt: o, drawn: pairs{}}
	p.chosen = slices.DeleteFunc(slices.Clone(chosen), func(f *fault) bool { return o.Lossless && f.lossy(o) })
	p.table, p.never = pairTable(o, p.chosen)
	return p
}

// candidates is the number of sets of campaigns drawn for a
// round; the one with most new pairs is taken.
const candidates = 20

// plan draws the next round, with at most so many faults.
func (p *planner) plan(n, faults int) *plan {
	r := chance(p.opt.Seed, n, chanceOfPlan)
	lossy := slices.ContainsFunc(p.chosen, func(f *fault) bool { return f.lossy(p.opt) })
	next := &plan{lossy: lossy && (p.opt.Seed+uint64(n))%lossyOneIn == 0}
	if len(p.drawn.without(p.table)) == 0 {
		clear(p.drawn) // all were drawn: start over for a longer run
	}
	most := -1
	for range candidates {
		drawn := p.drawCasts(r)
		if news := p.news(drawn, next.lossy); news > most {
			most = news
			next.casts = drawn
		}
	}
	for _, c := range next.casts {
		p.drawn.addFeatures(c.features)
	}
	for struck := 0; struck < faults; {
		b := p.planScenario(r, next, struck, faults-struck)
		if b == nil {
			break
		}
		next.scenarios = append(next.scenarios, b)
		for _, lane := range b.lanes {
			struck += len(lane)
		}
	}
	return next
}

func (p *planner) drawCasts(r *rand.Rand) []cast {
	all := casts()
	evicts := r.IntN(2) == 0
	upgrades := r.IntN(3) == 0
	for i := range all {
		c := &all[i]
		c.features = slices.Clone(c.must)
		if !slices.Contains(c.must, kindPackets) {
			c.features = append(c.features, pick([]string{kindCoupon, kindUnits}, r.IntN(2)))
		}
		for _, f := range c.may {
			if r.IntN(2) == 0 && (f != withShards || p.opt.Shards > 1) {
				c.features = append(c.features, f)
			}
		}
		c.claims = pick([]traffic{rush, rush, quiet, none}, r.IntN(4))
		switch {
		case c.name == endless:
			c.claims = rush
		case c.claims == none && slices.Contains(c.features, withArchive):
			c.claims = quiet // so that there is something to archive
		}
		if evicts && c.claims != rush {
			c.features = append(c.features, withEviction)
		}
		if upgrades {
			c.features = append(c.features, withUpgrade)
		}
	}
	return all
}

// news counts the new pairs possible in a round of these campaigns.
func (p *planner) news(drawn []cast, lossy bool) (n int) {
	all := pairs{}
	for _, c := range drawn {
		all.addFeatures(c.features)
		for _, f := range p.chosen {
			if lossy || !f.lossy(p.opt) {
				all.addFault(f.name, c.features)
			}
		}
	}
	if lossy && p.opt.Shards > 1 && !slices.ContainsFunc(drawn, func(c cast) bool { return slices.Contains(c.features, withShards) }) {
		return 0 // the effect of a rollback on shards matters more
	}
	for one := range all {
		if !p.drawn[one] {
			n++
		}
	}
	return n
}

// closeAfter is the number of faults before an archived campaign is closed.
const closeAfter = faultsARound / 4

// featuresAt lists the campaigns' features after so many faults of the round.
func (p *plan) featuresAt(struck int) (all []string) {
	for _, c := range p.casts {
		closed := slices.Contains(c.features, withArchive) && struck >= closeAfter
		for _, f := range c.features {
			if (f == withArchive) == closed && !slices.Contains(all, f) {
				all = append(all, f)
			}
		}
	}
	return all
}

// draw draws an allowed fault, preferring one with a new pair.
func (p *planner) draw(r *rand.Rand, with []string, may func(*fault) bool) *injection {
	isNew := func(f *fault) bool {
		return slices.ContainsFunc(with, func(feature string) bool { return !p.drawn[pair{feature, f.name}] })
	}
	s := draw(r, p.chosen, func(f *fault) bool { return may(f) && isNew(f) })
	if s == nil {
		s = draw(r, p.chosen, may)
	}
	if s != nil {
		p.drawn.addFault(s.name, with)
	}
	return s
}

// lasts is the approximate duration of a plan's faults.
func (p *plan) lasts() (sum time.Duration) {
	for _, b := range p.scenarios {
		sum += b.length()
	}
	return sum
}
