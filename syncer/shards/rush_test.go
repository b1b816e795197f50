package shards

import (
	"math"
	"math/rand/v2"
	"slices"

	"dibs/lua"
	"dibs/models"
)

// rush is a sale over many shards in milliseconds of its own: too large for real servers, so what they take is a constant that was
// measured. The rules are the real ones: models.NeedAhead says when a process asks for units and plan what its mover does. People are no
// persons but counts a shard and millisecond, which is exact enough: a claim here has no other state than its shard and the time for which
// it is held.
type rush struct {
	shape rushShape
	dice  *rand.Rand

	now      int // ms
	snapshot snapshot
	places   []rushPlace
	movers   []rushMover

	sold, asked, held, failed int64
	moves, looks, inTransit   int64
	isProven                  bool
	almostAt, soldAt          int // ms at which 99 % and all were sold
	heldThen                  int64
	curve                     []rushPoint
}

// rushShape is what is sold to whom, and what servers take.
type rushShape struct {
	seed              uint64
	shards, processes int
	units, people     int64
	arrive            float64 // ms: of those who have not come yet one in e does in this time
	skew              float64 // users of one shard in sixteen, by those of another
}

// What servers take: a claim as measured with `make bench BENCH=/shards` on a busy machine of two cores; the rest is assumed.
const (
	rushClaimsPerMs = 125 // of one primary: 8 µs of its processor a claim
	rushMoveMs      = 2   // from a debit to its credit
	rushLookMs      = 2   // a read of all lots
	rushHoldMs      = 200 // that a claim is held
	rushPaceMs      = int(models.PaceSpan / 1e6)
)

// rushPlace is a shard, and those who want something of it.
type rushPlace struct {
	weight       float64
	waiting      int64
	held         []rushHeld
	again        int64 // of those who wait, those that were held; the first of them since againSince
	againSince   int
	soldInSpan   int64 // units since the span started
	pace         int64
	isOneLooking []bool // by process
}

// rushHeld are claims that are held since a time.
type rushHeld struct {
	since int
	n     int64
}

// rushNeed is what a process asks its mover for.
type rushNeed struct {
	shard int // from 0
	need  models.Need
}

// rushMover is the mover of one process, which serves one need at a time.
type rushMover struct {
	queue []rushNeed
	busy  int // until then
	then  func()
}

// rushPoint is a moment of a rush.
type rushPoint struct {
	ms                int
	sold, held, moves int64 // of all until now; held are those that wait now
	reserve           int64
}

func newRush(shape rushShape) *rush {
	r := &rush{shape: shape, dice: rand.New(rand.NewPCG(shape.seed, 1)), movers: make([]rushMover, shape.processes)}
	loan, sum := shape.units/int64(2*shape.shards), 0.0
	r.snapshot.campaign = &models.Campaign{ID: "c", Kind: models.KindCoupon, Shards: shape.shards}
	for i := range shape.shards {
		place := rushPlace{weight: 1, isOneLooking: make([]bool, shape.processes)}
		if i%16 == 0 {
			place.weight = shape.skew
		}
		sum += place.weight
		r.places = append(r.places, place)
		r.snapshot.views = append(r.snapshot.views, lua.ShardView{Total: loan})
	}
	r.snapshot.views = append(r.snapshot.views, lua.ShardView{Total: shape.units - loan*int64(shape.shards)})
	for i := range r.places {
		r.places[i].weight /= sum
	}
	return r
}

// run runs until everything is sold and that is proven, or the time is over.
func (r *rush) run(most int) {
	for ; r.now < most && !r.isProven; r.now++ {
		come := float64(r.shape.people) / r.shape.arrive * math.Exp(-float64(r.now)/r.shape.arrive)
		for i := range r.places {
			r.serve(i, come*r.places[i].weight)
		}
		for i := range r.movers {
			r.turn(&r.movers[i], i)
		}
		r.note()
	}
}

// serve answers claims of a shard for a millisecond.
func (r *rush) serve(i int, mean float64) {
	place, view := &r.places[i], &r.snapshot.views[i]
	come := max(0, int64(math.Round(mean+math.Sqrt(mean)*r.dice.NormFloat64()))) // as good as Poisson's for so many
	r.asked += come
	place.waiting += come
	n := min(place.waiting, rushClaimsPerMs)
	place.waiting -= n
	took := min(n, view.Free())
	view.Taken, view.Seq = view.Taken+took, view.Seq+took
	r.sold, place.soldInSpan = r.sold+took, place.soldInSpan+took
	if r.now%rushPaceMs == 0 {
		place.pace, place.soldInSpan = place.soldInSpan, 0
	}
	again := min(n, place.again) // are served first
	place.again -= again
	if dry := n - took; dry > 0 {
		again = max(0, again-took)
		if again > 0 {
			place.held = append(place.held, rushHeld{place.againSince, again})
		}
		if dry > again {
			r.held += dry - again
			place.held = append(place.held, rushHeld{r.now, dry - again})
		}
		r.ask(i, dry, models.Need{Shard: i + 1, Units: 1, Pace: place.pace})
	}
	if need, lacks := models.NeedAhead(view.Free(), took, place.pace); lacks {
		need.Shard = i + 1
		r.ask(i, 1, need)
	}
	for len(place.held) > 0 && r.now-place.held[0].since >= rushHoldMs {
		r.failed += place.held[0].n
		place.held = place.held[1:]
	}
}

// ask has the processes of some claims ask their movers, each once for a shard.
func (r *rush) ask(i int, claims int64, need models.Need) {
	for range min(claims, int64(2*r.shape.processes)) {
		p := r.dice.IntN(r.shape.processes)
		if !r.places[i].isOneLooking[p] {
			r.places[i].isOneLooking[p] = true
			r.movers[p].queue = append(r.movers[p].queue, rushNeed{i, need})
		}
	}
}

// turn has a mover go on that waits for nothing.
func (r *rush) turn(m *rushMover, p int) {
	for m.busy <= r.now {
		if m.then == nil {
			if len(m.queue) == 0 {
				return
			}
			next := m.queue[0]
			m.queue = m.queue[1:]
			r.look(m, p, next)
			continue
		}
		then := m.then
		m.then = nil
		then()
	}
}

func (m *rushMover) after(now, ms int, then func()) { m.busy, m.then = now+ms, then }

// look decides on the next step of a need, by what the servers hold at the end of the look.
func (r *rush) look(m *rushMover, p int, n rushNeed) {
	r.looks++
	m.after(r.now, rushLookMs, func() {
		again := func() { r.look(m, p, n) }
		switch s := plan(&r.snapshot, n.need); s.verb {
		case verbMove:
			r.move(m, s, again)
		case verbProve:
			r.looks++
			m.after(r.now, rushLookMs, func() {
				r.isProven = r.isProven || r.sold == r.shape.units
				r.done(p, n)
			})
		case verbEnough, verbLoad, verbBlocked:
			r.done(p, n)
		}
	})
}

// move takes units out of one lot, and brings them to another.
func (r *rush) move(m *rushMover, s step, again func()) {
	r.moves++
	from, to := &r.snapshot.views[s.from], &r.snapshot.views[s.to]
	amount := min(s.units, from.Free())
	from.Total -= amount
	r.inTransit += amount
	m.after(r.now, rushMoveMs, func() {
		to.Total += amount
		r.inTransit -= amount
		again()
	})
}

// done ends a need: the claims that were held for the shard are sent again.
func (r *rush) done(p int, n rushNeed) {
	place := &r.places[n.shard]
	place.isOneLooking[p] = false
	if r.snapshot.views[n.shard].Free() == 0 {
		return
	}
	for _, one := range place.held {
		if place.again == 0 {
			place.againSince = one.since
		}
		place.again, place.waiting = place.again+one.n, place.waiting+one.n
	}
	place.held = nil
}

// note keeps what is shown.
func (r *rush) note() {
	var waits int64
	for i := range r.places {
		for _, one := range r.places[i].held {
			waits += one.n
		}
	}
	if r.almostAt == 0 && r.sold >= r.shape.units*99/100 {
		r.almostAt, r.heldThen = r.now, r.held
	}
	if r.soldAt == 0 && r.sold == r.shape.units {
		r.soldAt = r.now
	}
	r.curve = append(r.curve, rushPoint{r.now, r.sold, waits, r.moves, r.snapshot.views[r.shape.shards].Total})
}

// all units are somewhere.
func (r *rush) adds() bool {
	sum := r.inTransit
	for i := range r.snapshot.views {
		sum += r.snapshot.views[i].Total
	}
	return sum == r.shape.units && !slices.ContainsFunc(r.snapshot.views, func(v lua.ShardView) bool { return v.Taken > v.Total })
}
