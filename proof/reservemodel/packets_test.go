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

// upTo is the first entries of the log.
func (l log) upTo(n uint8) log { return l & (1<<(2*n) - 1) }

func (l log) count(packet uint8) (n int) {
	for ; l > 0; l >>= 2 {
		if uint8(l&3) == packet {
			n++
		}
	}
	return n
}

// set has the entry of a number be that packet. Entries between may be missing: 0.
func (l log) set(n, packet uint8) log { return l&^(3<<(2*n)) | log(packet)<<(2*n) }

// at is the packet of a number; 0 is missing, or none.
func (l log) at(n uint8) uint8 { return uint8(l >> (2 * n) & 3) }

// present is how many entries are there, those between that are missing not included.
func (l log) present() (n uint8) {
	for packet := uint8(1); packet <= packets; packet++ {
		n += uint8(l.count(packet))
	}
	return n
}

// ledger is what was credited to a lot and debited from it, by peer. What a primary holds is complete. Of the rows of MySQL some may be
// missing, also between others.
type ledger struct {
	Out, In [lots]log
	Epoch   uint8 // of the load
}

// transfers is how many there are: tseq of a primary, or rows.
func (l *ledger) transfers() (n uint8) {
	for j := range lots {
		n += l.Out[j].present() + l.In[j].present()
	}
	return n
}

// shelf is a lot of packets: what it was credited and debited, what users took, and its lists of free packets. Claims are on disk and
// booked at once: what becomes of them is not a matter of transfers.
type shelf struct {
	ledger
	Claimed, Free uint8 // a bit for each packet
}

// rows is what MySQL has of a lot. TSeq is its count of the transfers, which is what an eviction compares.
type rows struct {
	ledger
	Claimed, TSeq uint8
}

// loads is the number of the load of each lot, and what each lot knows of those of its peers.
type loads struct {
	Own   [lots]uint8
	Known [lots][lots]uint8 // by the taker and the giver
	Seen  [lots]uint8       // loads of all peers when that of the lot was started
}

// of adds up the loads of the peers of a lot.
func (l *loads) of(i int) (n uint8) {
	for j, own := range l.Own {
		if j != i {
			n += own
		}
	}
	return n
}

// stock is which packets a lot has free by what was credited and debited, and which of them twice. Lot 0 had all of them at first.
func stock(i int, l *ledger, claimed uint8) (free, twice uint8) {
	for packet := uint8(1); packet <= packets; packet++ {
		n := 0
		if i == 0 {
			n = 1
		}
		for j := range lots {
			n += l.In[j].count(packet) - l.Out[j].count(packet)
		}
		n -= int(claimed >> packet & 1)
		if n > 0 {
			free |= 1 << packet
		}
		if n > 1 {
			twice |= 1 << packet
		}
	}
	return free, twice
}

func (s *shelf) first() (packet uint8) {
	for packet = 1; packet <= packets; packet++ {
		if s.Free>>packet&1 == 1 {
			return packet
		}
	}
	return 0
}

// credit adds entries of a giver from the number that the lot has on. twice has a bit for each packet that the lot has already.
func (s *shelf) credit(giver uint8, entries log) (twice uint8) {
	for n := s.In[giver].length(); n < entries.length(); n++ {
		packet := entries.at(n)
		if (s.Free|s.Claimed)>>packet&1 == 1 {
			twice |= 1 << packet
		}
		s.In[giver] = s.In[giver].add(packet)
		s.Free |= 1 << packet
	}
	return twice
}

type dealer struct {
	Phase, From, To, Incarnation uint8
	Load                         uint8 // of the giver
	Entries                      log   // of the giver's debits for the taker
}

// status is what becomes of a lot in Redis.
type status uint8

const (
	open        status = iota
	fenced             // takes part in nothing, but holds what it has
	reloading          // a load has replaced a fenced copy, and is not confirmed
	loadingRows        // a load of rows is not confirmed
	absent
)

type dealt struct {
	Primary, Disk             [lots]shelf
	Status                    [lots]status
	SQL, Dump                 [lots]rows
	Read                      [lots]ledger // what consumers have read of the events of a lot
	IsDumped                  bool
	Tombstone                 [lots]ledger
	HasTombstone              [lots]bool
	Incarnation               [lots]uint8
	Loads                     loads
	Dealers                   [2]dealer
	Crashes, Restores         uint8
	Evictions, Debits, Fences uint8
	Twice                     uint8 // bits of packets that a lot got though it had them
}

// packetProtocol is the rules for packets: those for units, and
//
//   - every debit waits, whatever claims wait for;
//   - a giver keeps what it dealt for good, and its peers take no credit of an earlier load;
//   - a load waits until MySQL has each credit that a peer holds;
//   - a load and a comparison restored each row that is missing, also between others;
//   - a load that is not confirmed begins again with what its copy in Redis counts.
//
// They do not cover a shard that loses all data, with events that MySQL has not read, after it passed a packet on: its load knows that it
// debited the packet, by its peer, and not that it was credited it, so it can be credited it again.
type packetProtocol struct {
	NoWait, NoFloors, UnbookedFloors, NoTombstone, SQLWins, AnyLoad bool
	TailOnly, ForgetsFirstRound                                     bool

	Loss                                                        bool // a crash loses all data of a lot
	MaxCrashes, MaxRestores, MaxEvictions, MaxDebits, MaxFences uint8
	OneMover, GrantsOnly                                        bool // GrantsOnly: no shard gives packets
}

func (p *packetProtocol) start() (s dealt) {
	for i := range lots {
		s.Primary[i].Free, _ = stock(i, &s.Primary[i].ledger, 0)
	}
	s.Disk = s.Primary
	return s
}

func (s *dealt) holds(i int) bool { return s.Status[i] != absent }

// isBehind reports whether Redis lacks what MySQL has of a lot.
func (s *dealt) isBehind(i int) bool {
	has, booked := &s.Primary[i].ledger, &s.SQL[i].ledger
	if booked.Epoch < has.Epoch {
		return false // MySQL is behind
	}
	for j := range lots {
		if booked.Out[j].length() > has.Out[j].length() || booked.In[j].length() > has.In[j].length() || !isPart(booked.Out[j], has.Out[j]) {
			return true
		}
	}
	return false
}

// isPart reports whether all entries of one log stand in another one.
func isPart(some, all log) bool {
	for n := range some.length() {
		if packet := some.at(n); packet != 0 && packet != all.at(n) {
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
		p.loadSteps(s, i, put)
	}
	for m := range s.Dealers {
		if m == 0 || !p.OneMover && s.Dealers[m] != s.Dealers[0] {
			p.deal(s, uint8(m), put)
		}
	}
	if !s.IsDumped && p.MaxRestores > 0 {
		next := s
		next.IsDumped, next.Dump = true, s.SQL
		put(next, "mysql is dumped")
	}
	if s.IsDumped && s.Restores < p.MaxRestores && s.SQL != s.Dump {
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
	isOpen := s.Status[i] == open
	if packet := s.Primary[i].first(); i > 0 && isOpen && packet > 0 && !s.isBehind(i) {
		next := s
		next.Primary[i].Claimed |= 1 << packet
		next.Primary[i].Free &^= 1 << packet
		next.Disk[i] = next.Primary[i]
		next.SQL[i].Claimed = next.Primary[i].Claimed
		p.read(&next, i)
		put(next, "packet $b is claimed on $a", uint8(i), packet)
	}
	if isOpen && s.Disk[i] != s.Primary[i] {
		next := s
		next.Disk[i] = s.Primary[i]
		put(next, "disk of $a catches up", uint8(i))
	}
	if s.holds(i) && s.Crashes < p.MaxCrashes && (s.Disk[i] != s.Primary[i] || s.Status[i] > fenced) {
		next := s
		p.crash(&next, i)
		put(next, "crash of $a", uint8(i))
	}
	if p.Loss && s.Crashes < p.MaxCrashes && s.holds(i) {
		next := s
		next.Crashes++
		next.Incarnation[i]++
		next.Status[i], next.HasTombstone[i], next.Tombstone[i] = absent, false, ledger{}
		put(next, "data of $a is gone", uint8(i))
	}
	if isOpen && s.isBehind(i) {
		next := s
		next.Status[i] = fenced
		put(next, "$a is fenced", uint8(i))
	}
	if isOpen && s.Fences < p.MaxFences {
		next := s
		next.Fences++
		next.Status[i] = fenced
		put(next, "$a is fenced for another reason", uint8(i))
	}
	if isOpen && !s.isBehind(i) {
		next := s
		if p.read(&next, i); next != s {
			put(next, "the events of $a are read", uint8(i))
		}
		next = s
		if p.correct(&next, i, &s.Primary[i].ledger); next != s && s.Restores > 0 {
			put(next, "a comparison corrects the rows of $a", uint8(i))
		}
	}
	if isOpen && s.Evictions < p.MaxEvictions && s.SQL[i].TSeq == s.Primary[i].transfers() && s.SQL[i].Epoch == s.Primary[i].Epoch &&
		s.SQL[i].Claimed == s.Primary[i].Claimed && s.Disk[i] == s.Primary[i] && !s.isBehind(i) {
		next := s
		next.Evictions++
		next.Status[i], next.Tombstone[i], next.HasTombstone[i] = absent, s.Primary[i].ledger, true
		put(next, "$a is evicted", uint8(i))
	}
}

// crash leaves what is on the disk. A load that was not confirmed leaves the copy that it has replaced, or none.
func (p *packetProtocol) crash(s *dealt, i int) {
	s.Crashes++
	s.Incarnation[i]++
	s.Primary[i] = s.Disk[i]
	switch s.Status[i] {
	case reloading:
		s.Status[i] = fenced
	case loadingRows:
		s.Status[i] = absent
	default:
	}
	for j := range lots { // what is written instead of what was lost is read
		s.Read[i].Out[j] = s.Read[i].Out[j].upTo(s.Primary[i].Out[j].length())
		s.Read[i].In[j] = s.Read[i].In[j].upTo(s.Primary[i].In[j].length())
	}
}

// read books the events of a lot that consumers have not read. Those of another load than MySQL knows are dropped.
func (p *packetProtocol) read(s *dealt, i int) {
	book := func(has log, read, booked *log) {
		for n := read.length(); n < has.length(); n++ {
			*read = read.add(has.at(n))
			if s.SQL[i].Epoch == s.Primary[i].Epoch && booked.at(n) == 0 {
				*booked = booked.set(n, has.at(n))
				s.SQL[i].TSeq++
			}
		}
	}
	for j := range lots {
		book(s.Primary[i].Out[j], &s.Read[i].Out[j], &s.SQL[i].Out[j])
		book(s.Primary[i].In[j], &s.Read[i].In[j], &s.SQL[i].In[j])
	}
}

// correct has the rows of a lot say what it counts. With TailOnly it goes by the highest row of each peer.
func (p *packetProtocol) correct(s *dealt, i int, l *ledger) {
	mend := func(has log, booked *log) {
		*booked = booked.upTo(has.length())
		known := booked.length()
		for n := range has.length() {
			if !p.TailOnly || n >= known {
				*booked = booked.set(n, has.at(n))
			}
		}
	}
	for j := range lots {
		mend(l.Out[j], &s.SQL[i].Out[j])
		mend(l.In[j], &s.SQL[i].In[j])
	}
	s.SQL[i].Epoch, s.SQL[i].TSeq = l.Epoch, l.transfers()
}

// loadSteps are the steps of a load: a copy is put in Redis, which takes part in nothing, and opened once MySQL has confirmed it. It begins
// again if the load of a peer was started after it.
func (p *packetProtocol) loadSteps(s dealt, i int, put func(dealt, string, ...uint8)) {
	switch s.Status[i] {
	case fenced, absent:
		if next, can := p.load(s, i, s.Status[i] == fenced); can {
			put(next, "$a is loaded, not confirmed", uint8(i))
		}
	case reloading, loadingRows:
		if s.Loads.of(i) == s.Loads.Seen[i] {
			p.confirm(&s, i)
			put(s, "the load of $a is confirmed", uint8(i))
		} else if next, can := p.load(s, i, !p.ForgetsFirstRound); can {
			put(next, "the load of $a begins again", uint8(i))
		}
	default:
	}
}

// load puts a copy in Redis: by what Redis holds, as far as isHeld, or by rows.
func (p *packetProtocol) load(s dealt, i int, isHeld bool) (dealt, bool) {
	l := s.SQL[i].ledger
	if isHeld {
		l = s.Primary[i].ledger
		if p.SQLWins {
			for j := range lots {
				if s.SQL[i].Out[j].length() > l.Out[j].length() {
					l.Out[j] = s.SQL[i].Out[j]
				}
			}
		}
	} else if stone := &s.Tombstone[i]; s.HasTombstone[i] && !p.NoTombstone && (l.Epoch != stone.Epoch || s.SQL[i].TSeq < stone.transfers()) {
		return s, false // MySQL is behind what Redis evicted: a person decides
	}
	for j := range lots {
		credited := s.SQL[j].In[i]
		if !isHeld && s.holds(j) && s.Primary[j].In[i].length() > credited.present() && !p.UnbookedFloors {
			return s, false // MySQL does not know yet which packets these are
		}
		for n := l.Out[j].length(); n < credited.length() && !p.NoFloors; n++ {
			l.Out[j] = l.Out[j].set(n, credited.at(n))
		}
	}
	if !p.TailOnly && !s.fill(i, &l) {
		return s, false // which packets these were no one knows yet
	}
	switch s.Status[i] {
	case fenced:
		s.Status[i] = reloading
	case absent:
		s.Status[i] = loadingRows
	default:
	}
	s.Incarnation[i]++
	s.Loads.Own[i]++
	s.Loads.Seen[i] = s.Loads.of(i)
	l.Epoch = s.Loads.Own[i]
	claimed := s.SQL[i].Claimed
	s.Primary[i] = shelf{ledger: l, Claimed: claimed}
	free, twice := stock(i, &l, claimed)
	s.Primary[i].Free = free
	s.Twice |= twice
	for j := range lots {
		s.Loads.Known[j][i], s.Loads.Known[i][j] = s.Loads.Own[i], s.Loads.Own[j]
	}
	return s, true
}

// fill puts into a ledger the entries between others that it lacks, by the rows of the peer, or by the list that the giver holds.
func (s *dealt) fill(i int, l *ledger) bool {
	isWhole := true
	fillOne := func(own *log, peers ...log) {
		for n := range own.length() {
			for _, peer := range peers {
				if own.at(n) == 0 {
					*own = own.set(n, peer.at(n))
				}
			}
			isWhole = isWhole && own.at(n) != 0
		}
	}
	for j := range lots {
		fillOne(&l.Out[j], s.SQL[j].In[i])
		lists := []log{s.SQL[j].Out[i]}
		if s.holds(j) {
			lists = append(lists, s.Primary[j].Out[i])
		}
		fillOne(&l.In[j], lists...)
	}
	return isWhole
}

func (p *packetProtocol) confirm(s *dealt, i int) {
	p.correct(s, i, &s.Primary[i].ledger)
	s.Disk[i], s.Read[i] = s.Primary[i], s.Primary[i].ledger
	s.Status[i], s.HasTombstone[i], s.Tombstone[i] = open, false, ledger{}
}

func (p *packetProtocol) deal(s dealt, m uint8, put func(dealt, string, ...uint8)) {
	v := s.Dealers[m]
	switch v.Phase {
	case 0:
		for g := range uint8(lots) {
			for t := range uint8(lots) {
				if g == t || s.Status[g] != open || p.GrantsOnly && g > 0 {
					continue
				}
				out := s.Primary[g].Out[t]
				seen := dealer{Phase: 1, From: g, To: t, Incarnation: s.Incarnation[g], Load: s.Loads.Own[g], Entries: out}
				if packet := s.Primary[g].first(); packet > 0 && s.Debits < p.MaxDebits {
					next := s
					next.Debits++
					next.Primary[g].Out[t] = out.add(packet)
					next.Primary[g].Free &^= 1 << packet
					next.Dealers[m] = seen
					next.Dealers[m].Entries = next.Primary[g].Out[t]
					put(next, "a mover debits a packet on $a for $b", g, t)
				}
				if out.length() > s.Primary[t].In[g].length() {
					next := s
					next.Dealers[m] = seen
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
		if s.Status[v.To] == open && !s.isBehind(int(v.To)) {
			next := s
			next.Dealers[m] = dealer{}
			if p.AnyLoad || v.Load >= s.Loads.Known[v.To][v.From] {
				next.Twice |= next.Primary[v.To].credit(v.From, v.Entries)
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
	if s.Twice != 0 {
		return fmt.Sprintf("a lot got packets %b that it had", s.Twice)
	}
	for packet := uint8(1); packet <= packets; packet++ {
		owners := s.claimed(packet)
		if owners > 1 {
			return fmt.Sprintf("packet %d was given to %d users", packet, owners)
		}
		for i := 1; i < lots; i++ {
			if s.Status[i] == open && !s.isBehind(i) {
				owners += int(s.Primary[i].Free >> packet & 1)
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
		case s.Status[i] == open && s.isBehind(i):
			s.Status[i] = fenced
		case s.Status[i] == open:
			p.read(&s, i)
			p.correct(&s, i, &s.Primary[i].ledger)
		default:
		}
	}
	for again := true; again; {
		again = false
		for i := range lots {
			p.loadSteps(s, i, func(next dealt, _ string, _ ...uint8) {
				if next.Status[i] != open && next.Loads.of(i) == next.Loads.Seen[i] {
					p.confirm(&next, i)
				}
				s, again = next, true
			})
		}
	}
	for i := range lots {
		if s.Status[i] != open {
			return "" // it waits for a person
		}
	}
	for g := range uint8(lots) {
		for t := range lots {
			if twice := s.Primary[t].credit(g, s.Primary[g].Out[t]); twice > 0 {
				return fmt.Sprintf("drained: lot %d got packets %b that it had", t, twice)
			}
		}
	}
	sum, want := 0, 0
	for packet := uint8(1); packet <= packets; packet++ {
		want += amountOf(packet)
		sum += amountOf(packet) * s.claimed(packet)
		for i := range lots {
			sum += amountOf(packet) * int(s.Primary[i].Free>>packet&1)
		}
	}
	if sum != want {
		return fmt.Sprintf("drained: packets of %d in place of %d", sum, want)
	}
	return ""
}
