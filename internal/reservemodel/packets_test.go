package reservemodel

import "fmt"

// packets is how many packets a campaign has in the model. Their amounts are powers of two, so that a sum says which ones it has.
const packets = 2

func amountOf(packet uint8) int { return 1 << packet }

// log is the packets of all transfers of a pair of lots, in order: four bits of it are two packets, 1 and 2.
type log uint16

func (l log) length() (n uint8) {
	for ; l > 0; l >>= 2 {
		n++
	}
	return n
}

func (l log) add(packet uint8) log { return l | log(packet)<<(2*l.length()) }

// after is the log without its first entries, and upTo those.
func (l log) after(n uint8) log { return l >> (2 * n) }
func (l log) upTo(n uint8) log  { return l & (1<<(2*n) - 1) }

func (l log) count(packet uint8) (n int) {
	for ; l > 0; l >>= 2 {
		if uint8(l&3) == packet {
			n++
		}
	}
	return n
}

// shelf is a lot of packets: what was credited and debited, by peer, and what users took. The list of free packets follows from it. Claims
// are on disk and booked at once: what becomes of them is not a matter of transfers.
type shelf struct {
	Out, In [lots]log
	Claimed uint8 // a bit for each packet
	Epoch   uint8 // of the load
}

// loads is the number of the load of each lot, and what each lot knows of those of its peers.
type loads struct {
	Own   [lots]uint8
	Known [lots][lots]uint8 // by the taker and the giver
}

// has is how often a lot has a packet free. Lot 0 had all of them at first.
func (s *shelf) has(i int, packet uint8) (n int) {
	if i == 0 {
		n = 1
	}
	for j := range lots {
		n += s.In[j].count(packet) - s.Out[j].count(packet)
	}
	return n - int(s.Claimed>>packet&1)
}

func (s *shelf) first(i int) (packet uint8) {
	for packet = 1; packet <= packets; packet++ {
		if s.has(i, packet) > 0 {
			return packet
		}
	}
	return 0
}

type dealer struct {
	Phase, From, To, Incarnation uint8
	Load                         uint8 // of the giver
	Entries                      log   // of the giver's debits for the taker
}

type dealt struct {
	Primary, Disk, SQL, Dump     [lots]shelf
	Held, Fenced, Dumped         [lots]bool
	Tombstone                    [lots]shelf
	HasTombstone                 [lots]bool
	Incarnation                  [lots]uint8
	Loads                        loads
	Dealers                      [2]dealer
	Crashes, Restores, Evictions uint8
	Debits                       uint8
}

// packetProtocol is the rules for packets: those for units, and that every debit waits whatever claims wait for, that a giver keeps what it
// dealt for good, that a load waits until MySQL has each credit that a peer holds, and that
// its peers take no credit of an earlier load.
type packetProtocol struct {
	NoWait, NoFloors, UnbookedFloors, NoTombstone, SQLWins, AnyLoad bool

	Loss                                             bool // a crash loses all data of a lot
	MaxCrashes, MaxRestores, MaxEvictions, MaxDebits uint8
}

func (p *packetProtocol) start() (s dealt) {
	for i := range lots {
		s.Held[i] = true
	}
	return s
}

func (s *dealt) isBehind(i int) bool {
	if s.SQL[i].Epoch < s.Primary[i].Epoch {
		return false // MySQL is behind
	}
	for j := range lots {
		if s.SQL[i].Out[j].length() > s.Primary[i].Out[j].length() || s.SQL[i].In[j].length() > s.Primary[i].In[j].length() {
			return true
		}
	}
	return s.SQL[i].Out != s.Primary[i].Out && s.SQL[i].In == s.Primary[i].In && !s.isPrefix(i)
}

// isPrefix reports whether what MySQL has of a lot is the beginning of what Redis has.
func (s *dealt) isPrefix(i int) bool {
	for j := range lots {
		has := s.SQL[i].Out[j]
		if s.Primary[i].Out[j].upTo(has.length()) != has {
			return false
		}
	}
	return true
}

func (p *packetProtocol) steps(s dealt) (all []step[dealt]) {
	put := func(next dealt, format string, numbers ...uint8) {
		var n [3]uint8
		copy(n[:], numbers)
		all = append(all, step[dealt]{state: next, label: label{format: format, a: n[0], b: n[1], c: n[2]}})
	}
	for i := range lots {
		p.lotSteps(s, i, put)
	}
	for m := range s.Dealers {
		if m == 0 || s.Dealers[m] != s.Dealers[0] {
			p.deal(s, uint8(m), put)
		}
	}
	if !s.Dumped[0] && p.MaxRestores > 0 {
		next := s
		next.Dumped[0], next.Dump = true, s.SQL
		put(next, "mysql is dumped")
	}
	if s.Dumped[0] && s.Restores < p.MaxRestores && s.SQL != s.Dump {
		next := s
		next.Restores++
		for i := range lots {
			claimed := next.SQL[i].Claimed
			next.SQL[i] = s.Dump[i]
			next.SQL[i].Claimed = claimed // rows of claims come back from Redis, as without transfers
		}
		put(next, "mysql is restored")
	}
	return all
}

func (p *packetProtocol) lotSteps(s dealt, i int, put func(dealt, string, ...uint8)) {
	isOpen := s.Held[i] && !s.Fenced[i]
	if packet := s.Primary[i].first(i); i > 0 && isOpen && packet > 0 && !s.isBehind(i) {
		next := s
		next.Primary[i].Claimed |= 1 << packet
		next.Disk[i], next.SQL[i] = next.Primary[i], next.Primary[i]
		put(next, "packet $b is claimed on $a", uint8(i), packet)
	}
	if s.Held[i] && s.Disk[i] != s.Primary[i] {
		next := s
		next.Disk[i] = s.Primary[i]
		put(next, "disk of $a catches up", uint8(i))
		if s.Crashes < p.MaxCrashes {
			next = s
			next.Crashes++
			next.Incarnation[i]++
			next.Primary[i] = s.Disk[i]
			put(next, "crash of $a", uint8(i))
		}
	}
	if p.Loss && s.Crashes < p.MaxCrashes && s.Held[i] {
		next := s
		next.Crashes++
		next.Incarnation[i]++
		next.Held[i], next.Fenced[i] = false, false
		put(next, "data of $a is gone", uint8(i))
	}
	if isOpen && s.SQL[i] != s.Primary[i] {
		next := s
		if !s.isBehind(i) {
			next.SQL[i] = s.Primary[i]
			put(next, "$a is booked", uint8(i))
		} else {
			next.Fenced[i] = true
			put(next, "$a is fenced", uint8(i))
		}
	}
	if s.Held[i] && s.Fenced[i] {
		next := s
		p.rebuild(&next, i)
		put(next, "$a is rebuilt", uint8(i))
	}
	if isOpen && s.Evictions < p.MaxEvictions && s.SQL[i] == s.Primary[i] && s.Disk[i] == s.Primary[i] {
		next := s
		next.Evictions++
		next.Held[i], next.Tombstone[i], next.HasTombstone[i] = false, s.Primary[i], true
		put(next, "$a is evicted", uint8(i))
	}
	if !s.Held[i] {
		if next, loaded := p.load(s, i); loaded {
			put(next, "$a is loaded", uint8(i))
		}
	}
}

// rebuild takes what Redis holds: rows of transfers beyond were never on disk, so nobody credited them.
func (p *packetProtocol) rebuild(s *dealt, i int) {
	l := s.Primary[i]
	if p.SQLWins {
		for j := range lots {
			if s.SQL[i].Out[j].length() > l.Out[j].length() {
				l.Out[j] = s.SQL[i].Out[j]
			}
		}
	}
	p.open(s, i, l)
}

// open puts a load in force, and has the peers know it.
func (p *packetProtocol) open(s *dealt, i int, l shelf) {
	s.Incarnation[i]++
	s.Loads.Own[i]++
	l.Epoch = s.Loads.Own[i]
	s.Primary[i], s.Disk[i], s.SQL[i] = l, l, l
	s.Held[i], s.Fenced[i], s.HasTombstone[i], s.Tombstone[i] = true, false, false, shelf{}
	for j := range lots {
		s.Loads.Known[j][i], s.Loads.Known[i][j] = s.Loads.Own[i], s.Loads.Own[j]
	}
}

func (p *packetProtocol) load(s dealt, i int) (dealt, bool) {
	l := s.SQL[i]
	for j := range lots {
		stone := &s.Tombstone[i]
		if s.HasTombstone[i] && !p.NoTombstone && (l.Epoch != stone.Epoch || l.Out[j].length() < stone.Out[j].length() || l.In[j].length() < stone.In[j].length()) {
			return s, false
		}
		credited := s.SQL[j].In[i]
		if s.Held[j] && s.Primary[j].In[i].length() > credited.length() && !p.UnbookedFloors {
			return s, false // MySQL does not know yet which packets these are
		}
		if !p.NoFloors && credited.length() > l.Out[j].length() {
			l.Out[j] = credited
		}
	}
	p.open(&s, i, l)
	return s, true
}

func (p *packetProtocol) deal(s dealt, m uint8, put func(dealt, string, ...uint8)) {
	v := s.Dealers[m]
	isOpen := func(i uint8) bool { return s.Held[i] && !s.Fenced[i] }
	switch v.Phase {
	case 0:
		for g := range uint8(lots) {
			for t := range uint8(lots) {
				if g == t || !isOpen(g) {
					continue
				}
				out, credited := s.Primary[g].Out[t], s.Primary[t].In[g].length()
				if packet := s.Primary[g].first(int(g)); packet > 0 && s.Debits < p.MaxDebits {
					next := s
					next.Debits++
					next.Primary[g].Out[t] = out.add(packet)
					next.Dealers[m] = dealer{Phase: 1, From: g, To: t, Incarnation: s.Incarnation[g], Load: s.Loads.Own[g], Entries: next.Primary[g].Out[t]}
					put(next, "a mover debits a packet on $a for $b", g, t)
				}
				if out.length() > credited {
					next := s
					next.Dealers[m] = dealer{Phase: 1, From: g, To: t, Incarnation: s.Incarnation[g], Load: s.Loads.Own[g], Entries: out}
					put(next, "a mover finds packets in flight from $a to $b", g, t)
				}
			}
		}
		return
	case 1:
		if p.NoWait || s.Incarnation[v.From] == v.Incarnation && s.Disk[v.From].Out[v.To].length() >= v.Entries.length() {
			next := s
			next.Dealers[m].Phase = 2
			put(next, "the debit on $a is safe", v.From)
		}
	case 2:
		if isOpen(v.To) && !s.isBehind(int(v.To)) {
			next := s
			next.Dealers[m] = dealer{}
			had := s.Primary[v.To].In[v.From]
			if n := had.length(); v.Entries.length() > n && (p.AnyLoad || v.Load >= s.Loads.Known[v.To][v.From]) {
				next.Primary[v.To].In[v.From] = had | v.Entries.after(n)<<(2*n)
			}
			put(next, "$b credits what $a dealt", v.From, v.To)
		}
	}
	next := s
	next.Dealers[m] = dealer{}
	put(next, "mover $a dies", m)
}

// claimed is how many users have a packet.
func (s *dealt) claimed(packet uint8) (n int) {
	for i := range lots {
		n += int(s.SQL[i].Claimed >> packet & 1)
	}
	return n
}

func (p *packetProtocol) broken(s *dealt) string {
	for packet := uint8(1); packet <= packets; packet++ {
		owners := s.claimed(packet)
		if owners > 1 {
			return fmt.Sprintf("packet %d was given to %d users", packet, owners)
		}
		for i := range lots {
			n := s.Primary[i].has(i, packet)
			if s.Held[i] && (n > 1 || n < 0 && !p.Loss) { // a lot whose data is gone may lack for a moment what it has passed on
				return fmt.Sprintf("lot %d has packet %d %d times", i, packet, n)
			}
			if s.Held[i] && !s.Fenced[i] && !s.isBehind(i) && i > 0 {
				owners += max(0, n)
			}
		}
		if owners > 1 {
			return fmt.Sprintf("packet %d has %d owners", packet, owners)
		}
	}
	return p.drained(*s)
}

// drained brings everything back, completes every transfer, and adds up the amounts.
func (p *packetProtocol) drained(s dealt) string {
	for i := range lots {
		switch {
		case s.Held[i] && (s.Fenced[i] || s.isBehind(i)):
			p.rebuild(&s, i)
		case s.Held[i]:
			s.SQL[i], s.Disk[i] = s.Primary[i], s.Primary[i]
		}
	}
	for i := range lots {
		if !s.Held[i] {
			next, loaded := p.load(s, i)
			if !loaded {
				return "" // it waits for a person
			}
			s = next
		}
	}
	for g := range lots {
		for t := range lots {
			out, in := s.Primary[g].Out[t], &s.Primary[t].In[g]
			if n := in.length(); out.length() > n {
				*in |= out.after(n) << (2 * n)
			}
		}
	}
	sum, want := 0, 0
	for packet := uint8(1); packet <= packets; packet++ {
		want += amountOf(packet)
		sum += amountOf(packet) * s.claimed(packet)
		for i := range lots {
			n := s.Primary[i].has(i, packet)
			if n < 0 {
				return fmt.Sprintf("drained: lot %d has packet %d %d times", i, packet, n)
			}
			sum += amountOf(packet) * n
		}
	}
	if sum != want {
		return fmt.Sprintf("drained: packets of %d in place of %d", sum, want)
	}
	return ""
}
