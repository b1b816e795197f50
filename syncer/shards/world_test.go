package shards

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
)

// world is a campaign with its servers in memory. Each call of a mover is one step: before it the mover waits until it is let go on, so
// that a test decides who goes next, and who dies.
type world struct {
	total  int64
	lots   []*place // the shards, and the reserve behind them
	mysql  []books
	dump   []books
	flaw   flaw
	actors []*actor
	real   *servers // that do the same, in TestTheFakeIsAsTheServers
}

// flaw is what a world does wrong, so that the test can be seen to catch it. A load without floors is not among them: in a world whose
// debits are on disk before they are answered, a giver knows all that its peers were credited. proof/reservemodel has the worlds that
// need floors.
type flaw int

const (
	flawNone             flaw = iota
	flawNotKept               // a debit is answered before it is on the disk
	flawCountsTwice           // a credit that is sent again counts again
	flawSoldOutAtAGlance      // sold out by one look
	flawNoTombstone           // a load begins behind what Redis evicted
)

// row is a debit or credit, as an event of the claim stream and as a row of stock_moves.
type row struct {
	tseq, epoch int64
	isOut       bool
	peer        int
	upto        int64
}

// books is what MySQL has of a lot. tseq counts rows.
type books struct {
	epoch, attempts, tseq int64
	rows                  map[int64]row // by tseq
}

func (b *books) clone() books {
	c := *b
	c.rows = maps.Clone(b.rows)
	return c
}

// counts are the highest of each peer.
func (b *books) counts() (out, in map[int]int64) {
	out = make(map[int]int64)
	in = make(map[int]int64)
	for _, r := range b.rows {
		of := in
		if r.isOut {
			of = out
		}
		of[r.peer] = max(of[r.peer], r.upto)
	}
	return out, in
}

// held is what Redis holds of a lot. taken counts claims that were answered; these are on the disk, and come back with each load.
type held struct {
	epoch, taken, tseq, ups int64
	out, in, load           map[int]int64
}

func (h *held) clone() held {
	c := *h
	c.out, c.in, c.load = maps.Clone(h.out), maps.Clone(h.in), maps.Clone(h.load)
	return c
}

// has is what a lot has been credited, less what it has debited.
func has(in, out map[int]int64) (n int64) {
	for _, units := range in {
		n += units
	}
	for _, units := range out {
		n -= units
	}
	return n
}

func (h *held) free() int64 { return max(0, has(h.in, h.out)-h.taken) }

// place is a lot: what its Redis holds, and what is on the disk of that.
type place struct {
	number           int
	memory, disk     held
	stream           []row // that MySQL has not read
	run              int   // of the server
	tomb             int64 // debits and credits that were evicted
	isAbsent, isAway bool
	isFenced         bool // and absent to everybody; it holds its counts
	isForgetful      bool // it forgot what is in the stream or in MySQL, and no one has noticed
	isLost           bool // until a person repairs it
}

// debited and credited count units, and tell the stream.
func (s *place) debited(peer int, upto int64) {
	s.memory.out[peer] = upto
	s.told(row{isOut: true, peer: peer, upto: upto})
}

func (s *place) credited(peer int, upto int64) {
	s.memory.in[peer] = upto
	s.memory.ups++
	s.told(row{peer: peer, upto: upto})
}

func (s *place) told(r row) {
	s.memory.tseq++
	r.tseq = s.memory.tseq
	r.epoch = s.memory.epoch
	s.stream = append(s.stream, r)
}

func newWorld(total int64, shards int) *world {
	w := &world{total: total}
	loan := total / int64(2*shards)
	for i := range shards + 1 {
		s := &place{number: i + 1, memory: held{epoch: 1, out: map[int]int64{}, in: map[int]int64{}, load: map[int]int64{}}}
		if i < shards && loan > 0 {
			s.credited(models.ReserveLot, loan)
		}
		if i == shards {
			s.number = models.ReserveLot
			s.credited(0, total)
			for j := 0; j < shards && loan > 0; j++ {
				s.debited(j+1, loan)
			}
		}
		s.memory.ups = 0
		s.disk = s.memory.clone()
		w.lots = append(w.lots, s)
		w.mysql = append(w.mysql, books{epoch: 1, attempts: 1, rows: make(map[int64]row)})
		w.book(i)
	}
	w.save()
	return w
}

func (w *world) at(number int) int {
	for i, s := range w.lots {
		if s.number == number {
			return i
		}
	}
	panic("no such lot")
}

// taken is what users hold: a claim that was answered is on the disk.
func (w *world) taken() (n int64) {
	for _, s := range w.lots {
		n += s.disk.taken
	}
	return n
}

func (w *world) claim(shard int, units int64) bool {
	s := w.lots[shard]
	if s.isAbsent || s.isAway || s.memory.free() < units {
		return false
	}
	s.memory.taken += units
	w.real.claim(s, units)
	w.keep(s) // with all that was written before
	w.changed()
	return true
}

func (w *world) release(shard int, units int64) {
	s := w.lots[shard]
	if s.isAbsent || s.isAway || s.memory.taken < units || w.real != nil { // servers release one claim, not units
		return
	}
	s.memory.taken -= units
	s.memory.ups++
	w.keep(s)
	w.changed()
}

// keep has all that a lot holds be on its disk.
func (w *world) keep(s *place) {
	s.disk = s.memory.clone()
	w.real.keep(s)
}

// die has the Redis of a lot die and come back with what is on its disk. Its events were read.
func (w *world) die(lot int) {
	s := w.lots[lot]
	s.isForgetful = s.isForgetful || s.memory.tseq > s.disk.tseq
	s.memory = s.disk.clone()
	s.run++
	w.real.die(s)
}

// notice has someone notice that a lot forgot what it had told.
func (w *world) notice(lot int) {
	if s := w.lots[lot]; s.isForgetful && !s.isAbsent && !s.isAway {
		s.fence()
		w.real.fence(s)
	}
}

func (s *place) fence() {
	s.isAbsent = true
	s.isFenced = true
}

// book has MySQL read the stream of a lot. A row of another load is dropped, and one whose number is taken.
func (w *world) book(lot int) {
	s, b := w.lots[lot], &w.mysql[lot]
	for _, r := range s.stream {
		if _, isThere := b.rows[r.tseq]; r.epoch == b.epoch && !isThere {
			b.rows[r.tseq] = r
			b.tseq++
		}
	}
	s.stream = nil
	w.real.book(s, b)
}

// evict takes a lot out of Redis that MySQL has in full.
func (w *world) evict(lot int) {
	w.book(lot)
	s, b := w.lots[lot], &w.mysql[lot]
	if s.isAbsent || s.isAway || s.isForgetful || b.epoch != s.memory.epoch || b.tseq != s.memory.tseq {
		return
	}
	w.keep(s)
	s.isAbsent = true
	s.tomb = s.memory.tseq
	w.real.evict(s)
}

func (w *world) save() {
	w.dump = nil
	for i := range w.mysql {
		w.dump = append(w.dump, w.mysql[i].clone())
	}
	w.real.save()
}

// forget has MySQL be as it was when it was saved, but for its claims: those come back from Redis.
func (w *world) forget() {
	w.mysql = nil
	for i := range w.dump {
		w.mysql = append(w.mysql, w.dump[i].clone())
	}
	w.real.forget(w)
}

// broken says what must never be.
func (w *world) broken() error {
	if w.taken() > w.total {
		return fmt.Errorf("%d of %d units are taken", w.taken(), w.total)
	}
	return nil
}

// changed notes for everybody who looks how few units were free at a moment since it started.
func (w *world) changed() {
	for _, a := range w.actors {
		a.fewest = min(a.fewest, w.total-w.taken())
	}
}

// lotOf finds a lot by its id.
func (a *actor) lotOf(id string) *place {
	_, number := models.SplitShardID(id)
	return a.w.lots[a.w.at(number)]
}

// Shards reads one lot after the other, as servers of their own are read.
func (a *actor) Shards(_ context.Context, ids []string) []lua.ShardView {
	views := make([]lua.ShardView, len(ids))
	for i, id := range ids {
		a.step()
		s := a.lotOf(id)
		m := s.memory.clone()
		switch {
		case s.isAway:
			views[i].Err = lua.ErrUnavailable
		case s.isAbsent && !s.isFenced:
			views[i].Err = lua.ErrAbsent
		default:
			n := has(m.in, m.out)
			views[i] = lua.ShardView{
				Position: lua.Position{Epoch: m.epoch, TSeq: m.tseq}, Transfers: lua.Transfers{Out: m.out, In: m.in, Load: m.load},
				Ups: m.ups, Total: max(0, n), Owed: max(0, -n), Taken: m.taken,
			}
			if s.isFenced {
				views[i].Err = lua.ErrAbsent
			}
		}
	}
	return views
}

func (a *actor) Servers(_ context.Context, ids []string) (runs []string, err error) {
	a.step()
	for _, id := range ids {
		runs = append(runs, fmt.Sprint(a.lotOf(id).run))
	}
	return runs, nil
}

func (s *place) refuses(epoch int64) error {
	switch {
	case s.isAway:
		return lua.ErrUnavailable
	case s.isFenced:
		return lua.ErrOther
	case s.isAbsent:
		return lua.ErrAbsent
	case s.memory.epoch != epoch:
		return lua.ErrOther
	}
	return nil
}

func (a *actor) Debit(_ context.Context, c *models.Campaign, d *lua.Debit) (lua.Transferred, error) {
	a.step()
	s := a.lotOf(c.ID)
	told, err := s.debit(d)
	a.w.real.debit(s, d, told, err)
	// A server without durability waits for debits of units that users claim. This one has claims on its disk, so it waits for the reserve,
	// too.
	if err != nil || a.w.flaw == flawNotKept || d.NeedNotWait && s.number != models.ReserveLot {
		return told, err
	}
	a.step() // it may die before it is on the disk
	if s.refuses(d.Epoch) != nil || s.memory.out[d.Peer] < told.Upto {
		return lua.Transferred{}, lua.ErrOutcomeUnknown
	}
	a.w.keep(s)
	return told, nil
}

// debit is debit.lua.
func (s *place) debit(d *lua.Debit) (lua.Transferred, error) {
	h := &s.memory
	if err := s.refuses(d.Epoch); err != nil {
		return lua.Transferred{}, err
	}
	if h.out[d.Peer] != d.Seen {
		return lua.Transferred{}, lua.ErrMovedOn
	}
	for _, peer := range slices.Sorted(maps.Keys(d.Floors)) {
		if floor := d.Floors[peer]; floor > h.out[peer] && peer != d.Peer {
			s.debited(peer, floor)
		}
	}
	upto := max(h.out[d.Peer], d.Floors[d.Peer])
	free := h.free() - (upto - h.out[d.Peer])
	units := max(0, min(d.Units, free))
	if upto+units > h.out[d.Peer] {
		s.debited(d.Peer, upto+units)
	}
	return lua.Transferred{Upto: upto + units, Units: units}, nil
}

func (a *actor) Credit(_ context.Context, c *models.Campaign, d *lua.Credit) (lua.Transferred, error) {
	a.step()
	s := a.lotOf(c.ID)
	told, err := s.credit(d, a.w.flaw)
	a.w.real.credit(s, d, told, err)
	return told, err
}

// credit is credit.lua.
func (s *place) credit(d *lua.Credit, flaw flaw) (lua.Transferred, error) {
	h := &s.memory
	if err := s.refuses(d.Seen.Epoch); err != nil && (!s.isFenced || s.isAway || h.epoch != d.Seen.Epoch) {
		return lua.Transferred{}, err
	}
	if !s.isFenced && h.tseq < d.Seen.TSeq {
		s.fence()
		return lua.Transferred{}, lua.ErrBehind
	}
	if d.PeerLoad < h.load[d.Peer] {
		return lua.Transferred{}, lua.ErrPeer
	}
	before := h.in[d.Peer]
	if s.isFenced && d.Upto > before {
		return lua.Transferred{}, lua.ErrOther
	}
	h.load[d.Peer] = d.PeerLoad
	if flaw == flawCountsTwice && d.Upto == before && before > d.Before {
		d.Upto += before - d.Before
	}
	if d.Upto > before {
		s.credited(d.Peer, d.Upto)
	}
	return lua.Transferred{Upto: h.in[d.Peer], Units: h.in[d.Peer] - before}, nil
}

func (a *actor) Debited(context.Context, string, int64, int, int64) ([]string, error) {
	return nil, nil
}

// Hydrate loads a lot that Redis lacks.
func (a *actor) Hydrate(_ context.Context, id string) (lua.Meta, error) {
	a.step()
	return lua.Meta{}, a.w.load(a.lotOf(id))
}

// load is what residency does, see Hydrator.transfers. What the servers refuse to load is lost here, too: a person decides.
func (w *world) load(s *place) error {
	i := w.at(s.number)
	switch {
	case s.isAway:
		return lua.ErrUnavailable
	case !s.isAbsent:
		return nil
	case s.isFenced:
		w.book(i) // a lot that is fenced is loaded once all that it told is read
	}
	for _, peer := range w.lots {
		if peer.isAway {
			return lua.ErrUnavailable
		}
	}
	b := &w.mysql[i]
	if !s.isLost && w.isBehindTombstone(i) {
		s.isLost = true
		w.real.refuse(s)
	}
	if s.isLost {
		return campaigns.ErrLost
	}
	epoch := max(b.attempts, s.memory.epoch) + 1
	if !w.real.load(s, &epoch) {
		s.isLost = true
		return campaigns.ErrLost
	}
	tseq := b.tseq
	load := make(map[int]int64)
	out, in := b.counts()
	if s.isFenced {
		out = maps.Clone(s.memory.out)
		for peer, n := range s.memory.in {
			in[peer] = max(in[peer], n)
		}
		tseq = max(tseq, s.memory.tseq)
	}
	for j, peer := range w.lots {
		if j == i {
			continue
		}
		_, peerIn := w.mysql[j].counts()
		floor := peerIn[s.number]
		if !peer.isAbsent || peer.isFenced {
			peer.memory.load[s.number] = epoch
			floor = max(floor, peer.memory.in[s.number])
		}
		load[peer.number] = w.mysql[j].attempts
		out[peer.number] = max(out[peer.number], floor)
	}
	*b = b.corrected(epoch, tseq, out, in)
	s.memory = held{epoch: epoch, taken: s.memory.taken, tseq: b.tseq, in: in, out: out, load: load}
	s.isAbsent = false
	s.isFenced = false
	s.isForgetful = false
	w.keep(s)
	w.real.loaded(s, b)
	return nil
}

// isBehindTombstone reports whether MySQL has less of a lot than Redis evicted.
func (w *world) isBehindTombstone(lot int) bool {
	s, b := w.lots[lot], &w.mysql[lot]
	return s.isAbsent && !s.isFenced && (b.epoch < s.memory.epoch || b.tseq < s.tomb) && w.flaw != flawNoTombstone
}

// corrected are the rows of a lot once they say what a load begins with: those of debits that were forgotten go, and those that are missing
// come behind the last.
func (b *books) corrected(epoch, tseq int64, out, in map[int]int64) books {
	c := books{epoch: epoch, attempts: epoch, tseq: tseq, rows: make(map[int64]row)}
	for n, r := range b.rows {
		if !r.isOut || r.upto <= out[r.peer] {
			c.rows[n] = r
		}
	}
	hadOut, hadIn := c.counts()
	add := func(isOut bool, peer int, had, upto int64) {
		if upto > had {
			c.tseq++
			c.rows[c.tseq] = row{tseq: c.tseq, epoch: epoch, isOut: isOut, peer: peer, upto: upto}
		}
	}
	for peer := range models.ReserveLot + 1 {
		add(true, peer, hadOut[peer], out[peer])
		add(false, peer, hadIn[peer], in[peer])
	}
	return c
}
