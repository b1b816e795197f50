package reservemodel

import "fmt"

// lots is lot 0, the reserve, and two shards.
const lots = 3

// lot is what a primary or a row holds of a lot.
type lot struct {
	Claims, Released uint8
	Seq              uint8 // claims accepted
	TSeq             uint8 // transfers: debits and credits
	Ups              uint8 // what made units free, counted in Redis alone
	Epoch            uint8 // of the load
	Out, In          [lots]uint8
}

// mover is a process that moves units. It may die between any two steps.
type mover struct {
	Phase       uint8 // 0 idle, 1 has read all lots, 2 has an amount that may not be safe, 3 may credit
	From, To    uint8
	Units       uint8 // cumulative units to credit
	Added       uint8 // units of this debit alone
	Incarnation uint8 // of the giver, when the units were read
	Floor       [lots]uint8
}

// prover is a process that wants to prove that a campaign is sold out.
type prover struct {
	Phase       uint8
	First       [lots]lot
	Epoch       [lots]uint8
	Incarnation [lots]uint8
	Empty       bool // at some moment since the start nothing was free and nothing in flight
}

type units struct {
	Primary, Disk      [lots]lot
	Held, DiskIsOfLoad [lots]bool
	Fenced             [lots]bool
	Diverged           [lots]bool // MySQL booked what Redis then lost
	Incarnation, Epoch [lots]uint8
	Tombstone          [lots]lot
	HasTombstone       [lots]bool
	Extra              [lots]uint8 // claims that are booked and that Redis lost
	SQL, Dump          [lots]lot
	Dumped             bool
	Movers             [2]mover
	Prover             prover
	Answered, Given    uint8 // claims answered yes; of these released by MySQL
	ReleasedOn         [lots]uint8
	Crashes, Restores  uint8
	Evictions, Debits  uint8
	Proof              uint8 // 0 none, 1 right, 2 wrong
}

// protocol is the rules, of which some may be left out, and the bounds.
type protocol struct {
	Fast bool // claims are answered before they are on disk, and units leave lot 0 before the debit is
	// What is left out.
	NoWait, NoWaitOfRecalls, CreditFromSQL, CreditAdds, NoFloors, NoLoadFloors, NoTombstone, TombstoneOfClaims, SQLWins bool
	OneRead, AnyServer, NoUps, NoTSeq, FlightIgnored                                                                    bool
	Pairs, Loss                                                                                                         bool // shards give to shards; a crash may lose all data of a lot
	MaxCrashes, MaxRestores, MaxEvictions, MaxDebits, Total, Users, MaxReleases                                         uint8
}

func (p *protocol) start() (s units) {
	for i := range lots {
		s.Held[i], s.DiskIsOfLoad[i] = true, true
	}
	return s
}

func (p *protocol) free(i int, l *lot) int {
	n := int(l.Released) - int(l.Claims)
	if i == 0 {
		n += int(p.Total)
	}
	for j := range lots {
		n += int(l.In[j]) - int(l.Out[j])
	}
	return n
}

// stock is the units that are free anywhere or in flight.
func (p *protocol) stock(s *units) (n int) {
	for i := range lots {
		n += p.free(i, &s.Primary[i])
		for j := range lots {
			n += int(s.Primary[i].Out[j]) - int(s.Primary[j].In[i])
		}
	}
	return n
}

func (s *units) isOpen(i int) bool { return s.Held[i] && !s.Fenced[i] }

// add adds a step to those that can be taken.
type add func(next units, format string, numbers ...uint8)

func (p *protocol) steps(s units) (all []step[units]) {
	put := func(next units, format string, numbers ...uint8) {
		if next.Prover.Phase > 0 && p.stock(&next) <= 0 {
			next.Prover.Empty = true
		}
		var n [3]uint8
		copy(n[:], numbers)
		all = append(all, step[units]{state: next, label: label{format: format, a: n[0], b: n[1], c: n[2]}})
	}
	for i := range lots {
		p.claimAndSync(s, i, put)
		p.crash(s, i, put)
		p.book(s, i, put)
		p.release(s, i, put)
	}
	if !s.Dumped && p.MaxRestores > 0 {
		next := s
		next.Dumped, next.Dump = true, s.SQL
		put(next, "mysql is dumped")
	}
	if s.Dumped && s.Restores < p.MaxRestores && s.Dump != s.SQL {
		next := s
		next.Restores++
		next.SQL = s.Dump
		put(next, "mysql is restored")
	}
	for m := range s.Movers {
		if m == 0 || s.Movers[m] != s.Movers[0] { // of two alike one is enough
			p.move(s, uint8(m), put)
		}
	}
	p.prove(s, put)
	return all
}

func (p *protocol) claimAndSync(s units, i int, put add) {
	held := s.Primary[i]
	if i > 0 && s.isOpen(i) && p.free(i, &held) > 0 && s.Answered+p.unanswered(&s) < p.Users {
		next := s
		next.Primary[i].Claims++
		next.Primary[i].Seq++
		if p.Fast {
			next.Answered++
		}
		put(next, "claim on $a", uint8(i))
	}
	if s.Held[i] && (s.Disk[i] != held || !s.DiskIsOfLoad[i]) {
		next := s
		if !p.Fast {
			next.Answered += held.Claims - s.Disk[i].Claims
		}
		next.Disk[i], next.DiskIsOfLoad[i] = held, true
		put(next, "disk of $a catches up", uint8(i))
	}
}

func (p *protocol) unanswered(s *units) (n uint8) {
	if p.Fast {
		return 0
	}
	for i := range lots {
		if s.Held[i] {
			n += s.Primary[i].Claims - s.Disk[i].Claims
		}
	}
	return n
}

// isBehind reports whether a lot is behind another reading of it.
func isBehind(l, known *lot) bool {
	return l.Seq < known.Seq || l.TSeq < known.TSeq || l.Released < known.Released
}

func (p *protocol) crash(s units, i int, put add) {
	if s.Crashes >= p.MaxCrashes || !s.Held[i] {
		return
	}
	if s.DiskIsOfLoad[i] && s.Disk[i] != s.Primary[i] {
		next := s
		next.Crashes++
		next.Incarnation[i]++
		if isBehind(&s.Disk[i], &s.SQL[i]) && !s.Diverged[i] {
			next.Diverged[i] = true
			if p.Fast && s.SQL[i].Claims > s.Disk[i].Claims {
				next.Extra[i] += s.SQL[i].Claims - s.Disk[i].Claims
			}
		}
		next.Primary[i] = s.Disk[i]
		put(next, "crash of $a", uint8(i))
	}
	if p.Loss {
		next := s
		next.Crashes++
		next.Incarnation[i]++
		next.Held[i], next.HasTombstone[i], next.Fenced[i], next.Diverged[i], next.Extra[i] = false, false, false, false, 0
		put(next, "data of $a is gone", uint8(i))
	}
}

// book is what consumers, the detectors, the loaders and the evictor do. MySQL may book what is not on disk yet.
func (p *protocol) book(s units, i int, put add) {
	held := s.Primary[i]
	if s.isOpen(i) && !s.Diverged[i] && s.SQL[i] != held {
		next := s
		next.SQL[i] = held
		put(next, "$a is booked", uint8(i))
	}
	if s.isOpen(i) && s.Diverged[i] {
		next := s
		next.Fenced[i] = true
		put(next, "$a is fenced", uint8(i))
	}
	if s.Fenced[i] && s.Held[i] {
		next := s
		p.rebuild(&next, i)
		put(next, "$a is rebuilt", uint8(i))
	}
	if s.Evictions < p.MaxEvictions && s.isOpen(i) && !s.Diverged[i] && s.SQL[i] == held && s.Disk[i] == held {
		next := s
		next.Evictions++
		next.Held[i] = false
		next.Tombstone[i], next.HasTombstone[i] = held, true
		put(next, "$a is evicted", uint8(i))
	}
	if !s.Held[i] {
		if next, loaded := p.load(s, i); loaded {
			put(next, "$a is loaded", uint8(i))
		}
	}
}

// release is decided by MySQL and applied by Redis.
func (p *protocol) release(s units, i int, put add) {
	held := s.Primary[i]
	if i > 0 && s.Given < p.MaxReleases && s.SQL[i].Claims > 0 && s.Answered > s.Given && s.isOpen(i) && !s.Diverged[i] && s.Disk[i] == held {
		next := s
		next.Given++
		next.ReleasedOn[i]++
		put(next, "a claim on $a is released", uint8(i))
	}
	if s.isOpen(i) && held.Released < s.ReleasedOn[i] {
		next := s
		next.Primary[i].Released++
		next.Primary[i].Ups++
		put(next, "$a takes back its unit", uint8(i))
	}
}

// floors are the units that other lots were credited from a lot: by Redis where they are held, by MySQL elsewhere.
func (s *units) floors(i int) (f [lots]uint8) {
	for j := range lots {
		switch {
		case j == i:
		case s.Held[j]:
			f[j] = s.Primary[j].In[i]
		default:
			f[j] = s.SQL[j].In[i]
		}
	}
	return f
}

func (l *lot) raise(floors [lots]uint8) {
	before := l.Out
	for j := range lots {
		l.Out[j] = max(l.Out[j], floors[j])
	}
	if l.Out != before {
		l.TSeq++
	}
}

// rebuild loads a fenced lot again, whose primary holds its own counters.
func (p *protocol) rebuild(s *units, i int) {
	held, row := s.Primary[i], s.SQL[i]
	if p.SQLWins {
		for j := range lots {
			held.Out[j], held.In[j] = max(held.Out[j], row.Out[j]), max(held.In[j], row.In[j])
		}
	}
	held.Claims += s.Extra[i] // answered claims that Redis lost stay claims; the lot may owe units then, which is counted
	held.Seq, held.TSeq = max(held.Seq, row.Seq), max(held.TSeq, row.TSeq)
	p.putLoad(s, i, held)
}

func (p *protocol) load(s units, i int) (units, bool) {
	stone := s.Tombstone[i]
	if p.TombstoneOfClaims {
		stone = lot{Seq: stone.Seq, Epoch: stone.Epoch}
	}
	if s.HasTombstone[i] && !p.NoTombstone && (s.SQL[i].Epoch != stone.Epoch || isBehind(&s.SQL[i], &stone)) {
		return s, false // MySQL is behind what Redis remembers: a person decides
	}
	p.putLoad(&s, i, s.SQL[i])
	return s, true
}

func (p *protocol) putLoad(s *units, i int, l lot) {
	if !p.NoLoadFloors {
		l.raise(s.floors(i))
	}
	l.Ups++
	if !p.Fast && s.Held[i] {
		s.Answered += l.Claims - s.Disk[i].Claims
	}
	s.Epoch[i]++
	l.Epoch = s.Epoch[i]
	s.Primary[i], s.Disk[i], s.DiskIsOfLoad[i], s.Held[i] = l, l, true, true
	s.Incarnation[i]++
	s.SQL[i] = l
	s.Fenced[i], s.Diverged[i], s.Extra[i], s.HasTombstone[i], s.Tombstone[i] = false, false, 0, false, lot{}
}

func (p *protocol) move(s units, m uint8, put add) {
	v := s.Movers[m]
	if v.Phase > 1 {
		next := s
		next.Movers[m] = mover{}
		put(next, "mover $a dies", m)
	}
	switch v.Phase {
	case 0:
		for g := range lots {
			for t := range lots {
				if g != t && s.isOpen(g) && (g == 0 || t == 0 || p.Pairs) {
					p.readLots(s, m, g, t, put)
				}
			}
		}
	case 1:
		p.debit(s, m, put)
	case 2:
		waits := !p.NoWait && !p.Fast
		if v.From > 0 {
			waits = !p.NoWaitOfRecalls
		}
		if waits && (s.Incarnation[v.From] != v.Incarnation || s.Disk[v.From].Out[v.To] < v.Units) {
			return
		}
		next := s
		next.Movers[m].Phase = 3
		put(next, "mover $a: the debit on $b is safe", m, v.From)
	case 3:
		p.credit(s, m, put)
	}
}

// readLots is the mover's read: it decides on a debit, or finds units in flight.
func (p *protocol) readLots(s units, m uint8, g, t int, put add) {
	seen := mover{From: uint8(g), To: uint8(t), Units: s.Primary[g].Out[t], Incarnation: s.Incarnation[g]}
	if s.Debits < p.MaxDebits && p.free(g, &s.Primary[g]) > 0 {
		next := s
		next.Movers[m] = seen
		next.Movers[m].Phase, next.Movers[m].Floor = 1, s.floors(g)
		put(next, "mover $a reads all lots, for $b to $c", m, uint8(g), uint8(t))
	}
	credited := s.Primary[t].In[g]
	if seen.Units > credited {
		next := s
		next.Movers[m] = seen
		next.Movers[m].Phase, next.Movers[m].Added = 2, seen.Units-credited
		put(next, "mover $a finds units in flight from $b to $c", m, uint8(g), uint8(t))
	}
	if p.CreditFromSQL && s.SQL[g].Out[t] > credited {
		next := s
		next.Movers[m] = seen
		next.Movers[m].Phase, next.Movers[m].Units = 3, s.SQL[g].Out[t]
		put(next, "mover $a finds units in flight from $b to $c, by mysql", m, uint8(g), uint8(t))
	}
}

func (p *protocol) debit(s units, m uint8, put add) {
	v := s.Movers[m]
	if !s.isOpen(int(v.From)) {
		return
	}
	held := s.Primary[v.From]
	if held.Out[v.To] != v.Units {
		next := s
		next.Movers[m] = mover{}
		put(next, "mover $a: the debit is refused, others moved units", m)
		return
	}
	if !p.NoFloors {
		held.raise(v.Floor)
	}
	free := p.free(int(v.From), &held)
	if free <= 0 {
		next := s
		next.Primary[v.From], next.Movers[m] = held, mover{}
		put(next, "mover $a: nothing is free on $b", m, v.From)
	}
	for n := uint8(1); n <= 2 && int(n) <= free; n++ {
		next := s
		after := held
		after.Out[v.To] += n
		after.TSeq = s.Primary[v.From].TSeq + 1
		next.Primary[v.From] = after
		next.Debits++
		next.Movers[m] = mover{Phase: 2, From: v.From, To: v.To, Units: after.Out[v.To], Added: n, Incarnation: s.Incarnation[v.From]}
		put(next, "mover $a debits $c on $b", m, v.From, n)
	}
}

func (p *protocol) credit(s units, m uint8, put add) {
	v := s.Movers[m]
	if !s.isOpen(int(v.To)) || s.Diverged[v.To] {
		return
	}
	next := s
	next.Movers[m] = mover{}
	taker := &next.Primary[v.To]
	switch {
	case p.CreditAdds:
		taker.In[v.From] += v.Added
		taker.Ups++
		taker.TSeq++
	case v.Units > taker.In[v.From]:
		taker.In[v.From] = v.Units
		taker.Ups++
		taker.TSeq++
	}
	put(next, "mover $a credits $b up to $c", m, v.To, v.Units)
}

// prove tells sold out: all lots are read, and read again.
func (p *protocol) prove(s units, put add) {
	if p.MaxReleases == 0 && !p.OneRead && !p.FlightIgnored && p.stock(&s) > 1 { // nothing to learn
		return
	}
	v := s.Prover
	i := int(v.Phase) % lots
	if v.Phase == 0 && (s.Proof != 0 || !s.isOpen(0)) {
		return
	}
	next := s
	if !s.isOpen(i) {
		next.Prover, next.Proof = prover{}, 1
		put(next, "prover: $a is away", uint8(i))
		return
	}
	next.Prover.Phase++
	if v.Phase < lots {
		next.Prover.First[i], next.Prover.Epoch[i], next.Prover.Incarnation[i] = s.Primary[i], s.Epoch[i], s.Incarnation[i]
		if int(v.Phase) < lots-1 || !p.OneRead {
			put(next, "prover reads $a", uint8(i))
			return
		}
	} else {
		if !p.isUnchanged(&s, i) {
			next.Prover, next.Proof = prover{}, 1
			put(next, "prover: $a changed", uint8(i))
			return
		}
		if int(v.Phase) < 2*lots-1 {
			put(next, "prover reads $a again", uint8(i))
			return
		}
	}
	free := 0
	for j := range lots {
		free += p.free(j, &next.Prover.First[j])
	}
	empty := s.Prover.Empty || p.stock(&s) <= 0
	next.Prover, next.Proof = prover{}, 1
	if free <= 0 && !empty {
		next.Proof = 2
	}
	put(next, "prover has read all")
}

// isUnchanged reports whether no unit became free on a lot between two reads, and whether none was in flight from it.
func (p *protocol) isUnchanged(s *units, i int) bool {
	first, now := &s.Prover.First[i], &s.Primary[i]
	if s.Epoch[i] != s.Prover.Epoch[i] || now.Seq < first.Seq || !p.NoTSeq && now.TSeq < first.TSeq || !p.NoUps && now.Ups != first.Ups ||
		!p.AnyServer && s.Incarnation[i] != s.Prover.Incarnation[i] {
		return false
	}
	for t := range lots {
		if !p.FlightIgnored && now.Out[t] > s.Prover.First[t].In[i] {
			return false
		}
	}
	return true
}

func (s *units) live() (n int) {
	for i := range lots {
		n += int(s.Primary[i].Claims) - int(s.Primary[i].Released)
	}
	return n
}

// isVisible reports whether a reader of the lots can see that units were sold twice: some lot owes units, is behind MySQL, or was credited
// what its giver does not know of.
func (p *protocol) isVisible(s *units) bool {
	for i := range lots {
		if p.free(i, &s.Primary[i]) < 0 || s.Diverged[i] {
			return true
		}
		for j := range lots {
			if s.Primary[j].In[i] > s.Primary[i].Out[j] {
				return true
			}
		}
	}
	return false
}

func (p *protocol) broken(s *units) string {
	switch {
	case s.Proof == 2:
		return "sold out was told while units were free"
	case !p.Fast && int(s.Answered)-int(s.Given) > int(p.Total):
		return fmt.Sprintf("%d of %d units were answered yes", s.Answered-s.Given, p.Total)
	case s.live() > int(p.Total) && !p.isVisible(s):
		return fmt.Sprintf("%d of %d units are claimed, and nothing shows it", s.live(), p.Total)
	}
	return p.drained(*s)
}

// drained brings everything back, completes every transfer, and sells what is there.
func (p *protocol) drained(s units) string {
	for i := range lots {
		switch {
		case s.Held[i] && (s.Diverged[i] || s.Fenced[i]):
			p.rebuild(&s, i)
		case !s.Held[i]:
			next, loaded := p.load(s, i)
			if !loaded {
				return "" // it waits for a person, and says so; the others sell only what they hold
			}
			s = next
		}
	}
	left, owed := 0, 0
	for g := range lots {
		if !p.Fast {
			s.Answered += s.Primary[g].Claims - s.Disk[g].Claims
		}
		for t := range lots {
			in, out := &s.Primary[t].In[g], &s.Primary[g].Out[t]
			if *in > *out && !p.NoFloors {
				*out = *in
			}
			*in = max(*in, *out)
		}
	}
	for i := range lots {
		s.Primary[i].Released = s.ReleasedOn[i]
		free := p.free(i, &s.Primary[i])
		left, owed = left+max(0, free), owed+max(0, -free)
	}
	end := s.live() + max(0, left-owed)
	switch {
	case !p.Fast && int(s.Answered)-int(s.Given)+max(0, left-owed) > int(p.Total):
		return fmt.Sprintf("drained: %d answered and %d for sale, of %d", s.Answered-s.Given, left-owed, p.Total)
	case end > int(p.Total) && owed == 0:
		return fmt.Sprintf("drained: %d of %d are sold or for sale, and no lot owes any", end, p.Total)
	case end < int(p.Total):
		return fmt.Sprintf("drained: only %d of %d can ever be sold", end, p.Total)
	}
	return ""
}
