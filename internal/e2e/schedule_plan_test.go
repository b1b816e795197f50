package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// plan is what a seed says: a house, campaigns, and what befalls them. How it interleaves is the machine's affair.
type plan struct {
	seed       uint64
	lossy      bool // Redis forgets: it comes back as an older snapshot, or empty
	serve      bool // two processes of all roles, instead of one or two of each
	fsync      bool
	control    bool // a part is broken: nobody heals, and nobody buys what is left
	partitions int
	settings   map[string]string
	lasts      time.Duration
	campaigns  []campaign
	faults     []deed // one after the other
	changes    []deed // by the operator, beside them
}

// deed is one thing that befalls the house.
type deed struct {
	at    time.Duration // since the beginning; later when the one before takes its time
	what  string
	who   int           // which campaign or process
	n     int64         // how much
	lasts time.Duration // until it is put right
}

func (d deed) String() string {
	return fmt.Sprintf("%5dms %s who=%d n=%d for %dms", d.at.Milliseconds(), d.what, d.who, d.n, d.lasts.Milliseconds())
}

func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: lossy=%t serve=%t fsync=%t partitions=%d lasts %s settings %v\n",
		p.seed, p.lossy, p.serve, p.fsync, p.partitions, p.lasts, p.settings)
	for i, c := range p.campaigns {
		fmt.Fprintf(&b, "campaign %d: %+v\n", i, c)
	}
	for _, d := range p.faults {
		fmt.Fprintf(&b, "fault  %s\n", d)
	}
	for _, d := range p.changes {
		fmt.Fprintf(&b, "change %s\n", d)
	}
	return b.String()
}

// weighted is a deed's name and how often it comes up.
type weighted struct {
	what   string
	weight int
}

// faultsOfAll befall every house.
var faultsOfAll = []weighted{
	{"kill api", 4}, {"kill consumer", 4}, {"kill syncer", 3}, {"stop any", 3}, {"depose leader", 3}, {"cut mysql", 4}, {"reset mysql", 2},
	{"cut redis", 3}, {"flush scripts", 1}, {"repair", 3}, {"hush", 8},
}

// faultsOfSafe are those of a Redis that keeps what it answered.
var faultsOfSafe = []weighted{{"kill redis", 4}, {"restart redis", 2}, {"hang redis", 2}}

// faultsOfLossy are those of a Redis that does not.
var faultsOfLossy = []weighted{{"snapshot", 5}, {"roll back", 3}, {"roll back unread", 4}, {"flush all", 2}, {"flush all unread", 2}}

// changesOf an operator.
var changesOf = []weighted{
	{"total up", 8}, {"total down", 3}, {"pause", 3}, {"per_user", 4}, {"low_stock_at", 3}, {"starts_at", 2}, {"ends_at", 2},
}

func draw(r *rand.Rand, from []weighted) string {
	sum := 0
	for _, w := range from {
		sum += w.weight
	}
	n := r.IntN(sum)
	for _, w := range from {
		if n -= w.weight; n < 0 {
			return w.what
		}
	}
	return ""
}

func between(r *rand.Rand, least, most int64) int64 { return least + r.Int64N(most-least+1) }

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// planOf makes the plan of a seed; the same one each time.
func planOf(seed uint64, lossy bool) plan {
	r := rand.New(rand.NewPCG(seed, 7))
	p := plan{
		seed: seed, lossy: lossy, serve: r.IntN(2) == 0, fsync: !lossy && r.IntN(2) == 0, partitions: 1 + r.IntN(2), lasts: ms(between(r, 2500, 4000)),
		settings: map[string]string{
			"DIBS_FLUSH_SIZE": fmt.Sprint(between(r, 5, 200)), "DIBS_FLUSH_INTERVAL": ms(between(r, 2, 80)).String(),
			"DIBS_IDLE_EVICT": ms(between(r, 100, 400)).String(), "DIBS_GROUPS": "syncer,finance,audit", "DIBS_SHUTDOWN_TIMEOUT": "5s",
		},
	}
	for range 2 + r.IntN(2) {
		c := campaign{Total: between(r, 30, 900), LowStockAt: between(r, 0, 20), TimeZone: "UTC"}
		if r.IntN(2) == 0 {
			c.PerUser = between(r, 3, 50)
		}
		if r.IntN(3) == 0 {
			c.PerUserPerDay = between(r, 2, 30)
		}
		if c.PerUser > 0 {
			c.PerUserPerDay = min(c.PerUserPerDay, c.PerUser)
		}
		p.campaigns = append(p.campaigns, c)
	}
	faults := append(slices.Clone(faultsOfAll), faultsOfSafe...)
	if lossy {
		faults = append(slices.Clone(faultsOfAll), faultsOfLossy...)
	}
	for at := ms(between(r, 100, 400)); at < p.lasts; at += ms(between(r, 50, 600)) {
		p.faults = append(p.faults, deed{at: at, what: draw(r, faults), who: r.IntN(12), n: between(r, 1, 100), lasts: ms(between(r, 10, 400))})
	}
	for at := ms(between(r, 100, 300)); at < p.lasts; at += ms(between(r, 50, 400)) {
		p.changes = append(p.changes, deed{at: at, what: draw(r, changesOf), who: r.IntN(12), n: between(r, 1, 100), lasts: ms(between(r, 20, 300))})
	}
	p.holdOne()
	p.packetsOne()
	return p
}

// extra is chance for what came to the plans later, so that the rest of a seed is what it was.
func (p *plan) extra(what uint64) *rand.Rand { return rand.New(rand.NewPCG(p.seed, what)) }

// holdOne has the claims of one campaign expire, in two of three plans. It is a small one: what expires is sold again.
func (p *plan) holdOne() {
	r := p.extra(8)
	if r.IntN(3) == 0 {
		return
	}
	c := &p.campaigns[0]
	c.Total, c.HoldFor = between(r, 30, 200), ms(between(r, 1000, 2500)).String()
}
