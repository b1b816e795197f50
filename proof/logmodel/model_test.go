// Package logmodel checks a planned design of Dibs by explicit-state search:
// MySQL keeps the claim stream's offset, in the transaction that writes the
// rows. It searches all interleavings breadth first, within bounds, with a
// visited set of canonical states, and reports the shortest trace of a
// violation. The code does not work like this yet.
//
//	go test ./proof/logmodel                          # the rules hold within small bounds, and each of them is needed
//	go test ./proof/logmodel -args -max 3000000       # in every state of the scenarios
//	go test ./proof/logmodel -args -only NAME         # of one scenario, by a part of its name
//	go test ./proof/logmodel -args -deep              # larger bounds, minutes
//	go test ./proof/logmodel -args -without 'A B'     # without rules, which says how something breaks
//
// Model one is one partition of one lot. Redis is a history of writes and a
// pure function of it; a rollback cuts the history. Stream entries are the
// writes visible to readers. A fence, the generation's key and the offset's
// key are writes that they don't see. Model two is lots on two partitions
// that move units; see the second half.
package logmodel

import (
	"fmt"
	"reflect"
	"strings"
	"time"
	"unsafe"
)

// ---- the search
// -----------------------------------------------------------------------------------------------------------------

type emitter[S comparable] struct {
	out func(n *S, sys bool, code string, a, b int)
	bad func(msg string)
	cut func() // a step of the system did not fit the bounds
}

type system[S comparable] interface {
	start() S
	canon(s *S)
	steps(s *S, e *emitter[S])
	quiet(s *S) (quiet bool, wrong string)
	show(s *S) string
}

type result struct {
	states, edges, quiet int
	depth                int
	full                 bool
	broken               string
	trace                []string
	took                 time.Duration
}

type slot struct {
	h uint64
	i uint32
}

type table struct {
	slots []slot
	n     int
}

func (t *table) get(h uint64, next uint32) (uint32, bool) {
	if t.n*2 >= len(t.slots) {
		old := t.slots
		t.slots = make([]slot, max(1024, 2*len(old)))
		for _, s := range old {
			if s.h != 0 {
				for j := s.h & uint64(len(t.slots)-1); ; j = (j + 1) & uint64(len(t.slots)-1) {
					if t.slots[j].h == 0 {
						t.slots[j] = s
						break
					}
				}
			}
		}
	}
	if h == 0 {
		h = 1
	}
	mask := uint64(len(t.slots) - 1)
	for j := h & mask; ; j = (j + 1) & mask {
		switch t.slots[j].h {
		case h:
			return t.slots[j].i, false
		case 0:
			t.slots[j] = slot{h, next}
			t.n++
			return next, true
		}
	}
}

func hash[S comparable](s *S) uint64 {
	n := unsafe.Sizeof(*s)
	p := unsafe.Pointer(s)
	h := uint64(0x9E3779B97F4A7C15)
	var i uintptr
	for ; i+8 <= n; i += 8 {
		v := *(*uint64)(unsafe.Add(p, i))
		h = (h ^ v) * 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	var v uint64
	for ; i < n; i++ {
		v = v<<8 | uint64(*(*byte)(unsafe.Add(p, i)))
	}
	h = (h ^ v) * 0xc4ceb9fe1a85ec53
	h ^= h >> 29
	h *= 0xff51afd7ed558ccd
	return h ^ h>>32
}

func search[S comparable](m system[S], limit int, until time.Duration) (r result) {
	began := time.Now()
	var (
		seen    table
		parent  []uint32
		ordinal []uint16
		isQuiet []bool // or cut, or not expanded: counts as quiet for liveness
		from    []uint32
		to      []uint32
	)
	trace := func(at uint32, extra int) []string {
		var path []uint16
		for i := at; i != 0; i = parent[i] {
			path = append(path, ordinal[i])
		}
		s := m.start()
		m.canon(&s)
		var lines []string
		apply := func(k int) {
			var n S
			i := 0
			m.steps(&s, &emitter[S]{out: func(c *S, _ bool, code string, a, b int) {
				if i == k {
					n = *c
					lines = append(lines, strings.NewReplacer("%a", fmt.Sprint(a), "%b", fmt.Sprint(b)).Replace(code))
				}
				i++
			}, bad: func(string) {}, cut: func() {}})
			s = n
			m.canon(&s)
		}
		for i := len(path) - 1; i >= 0; i-- {
			apply(int(path[i]))
		}
		if extra >= 0 {
			apply(extra)
		}
		return append(lines, "=> "+m.show(&s))
	}
	s0 := m.start()
	m.canon(&s0)
	seen.get(hash(&s0), 0)
	parent, ordinal, isQuiet = append(parent, 0), append(ordinal, 0), append(isQuiet, false)
	level, ids := []S{s0}, []uint32{0}
	r.full = true
	for len(level) > 0 && r.broken == "" {
		var nextLevel []S
		var nextIDs []uint32
		for li := range level {
			s, id := &level[li], ids[li]
			if len(parent) > limit || time.Since(began) > until {
				r.full = false
				isQuiet[id] = true
				continue
			}
			quiet, wrong := m.quiet(s)
			if wrong != "" {
				r.broken, r.trace = wrong, trace(id, -1)
				break
			}
			if quiet {
				isQuiet[id] = true
				r.quiet++
			}
			k := 0
			badAt, bad := -1, ""
			m.steps(s, &emitter[S]{
				out: func(n *S, sys bool, _ string, _, _ int) {
					if bad != "" && badAt < 0 {
						badAt = k
					}
					c := *n
					m.canon(&c)
					i, isNew := seen.get(hash(&c), uint32(len(parent)))
					if isNew {
						parent, ordinal, isQuiet = append(parent, id), append(ordinal, uint16(k)), append(isQuiet, false)
						nextLevel, nextIDs = append(nextLevel, c), append(nextIDs, i)
					}
					if sys {
						from, to = append(from, id), append(to, i)
					}
					r.edges++
					k++
				},
				bad: func(msg string) {
					if bad == "" {
						bad = msg
					}
				},
				cut: func() { isQuiet[id] = true },
			})
			if bad != "" {
				r.broken, r.trace = bad, trace(id, badAt)
				break
			}
		}
		level, ids = nextLevel, nextIDs
		r.depth++
	}
	r.states = len(parent)
	if r.broken == "" { // from every state quiet must be reachable without faults
		first := make([]uint32, len(parent)+1)
		for _, t := range to {
			first[t+1]++
		}
		for i := range parent {
			first[i+1] += first[i]
		}
		back := make([]uint32, len(to))
		fill := append([]uint32(nil), first...)
		for e, t := range to {
			back[fill[t]] = from[e]
			fill[t]++
		}
		ok := make([]bool, len(parent))
		var todo []uint32
		for i := range parent {
			if isQuiet[i] {
				ok[i] = true
				todo = append(todo, uint32(i))
			}
		}
		for len(todo) > 0 {
			i := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			for _, j := range back[first[i]:first[i+1]] {
				if !ok[j] {
					ok[j] = true
					todo = append(todo, j)
				}
			}
		}
		for i := range ok {
			if !ok[i] {
				r.broken, r.trace = "stuck: without faults it never gets quiet again", trace(uint32(i), -1)
				// where it ends
				next := map[uint32][]uint32{}
				for e := range from {
					next[from[e]] = append(next[from[e]], to[e])
				}
				was, todo := map[uint32]bool{uint32(i): true}, []uint32{uint32(i)}
				best := uint32(i)
				for len(todo) > 0 {
					x := todo[0]
					todo = todo[1:]
					if true {
						best = x
					}
					for _, y := range next[x] {
						if !was[y] {
							was[y] = true
							todo = append(todo, y)
						}
					}
				}
				r.trace = append(r.trace, "and then: ")
				r.trace = append(r.trace, trace(best, -1)...)
				break
			}
		}
	}
	r.took = time.Since(began)
	return r
}

// ---- model one: a partition of one lot
// ------------------------------------------------------------------------------------------

const (
	kNone uint8 = iota
	kClaim
	kLoaded
	kResumed
	kEvicted
	kReleased
	kChanged
	kGiven
	kGenEntry // the generation as an entry of the stream
	kLastVisible
	kGen   // the generation as a key alone
	kFence // Arg: the loader, 9 is none
	kDel   // the lot's keys vanish
	kOff   // the offset's key, Arg: id
	kTrim  // Arg: entries up to this id are trimmed; Epoch 1: the trimmer also wrote this to Redis
)

var kinds = [...]string{"-", "claim", "loaded", "resumed", "evicted", "released", "changed", "given_up", "generation", "", "SET generation", "fence",
	"del", "SET offset", "trim"}

type entry struct{ Kind, UID, ID, Arg, Epoch, Gen, S, Q, Ret, Ver, Tot, Mask, Rel, Giv uint8 }

const (
	H  = 12 // writes in the history
	NB = 8  // entries in a batch
	NC = 4  // claims
)

type lotState struct {
	Has, Fenced                                     bool
	Token, Epoch, Gen, S, Q, Ret, Ver, Tot          uint8
	Mask, Rel, Giv, LastID, PGen, OffKey, Trim, Tri uint8 // Tri: value of the key trimmed
}

type books struct {
	OffID, OffUID, Trimmed, Gen, PS, Live, Epoch, SeenE, SeenQ, SeenS, Rows, Rel, Out, Giv, Ver, Tot, DefP, Redo uint8
}

type reader struct {
	Ph, OffID, OffUID, Gen, N uint8
	B                         [NB]entry
}

type process struct {
	Alive                          bool
	SeenE, SeenQ, SeenS, Know      uint8
	Pend, PendID, PendS, PendQ, PE uint8
}

type loader struct {
	Ph, Tip, TipUID, Gen, E, Resume, Ask uint8
	B                                    entry
}

const (
	fAnswered = 1 << iota
	fExposed
	fLostR
	fGivenUp
	fMysqlLost
	fReleased
)

type one struct {
	Hist            [H]entry
	NH, NU, NClaims uint8
	R               lotState
	M, D            books
	Dumped          bool
	Rd              [2]reader
	P               [2]process
	L               [2]loader
	Unit, Fl        [NC]uint8
	// 0 closed, 1 Redis lost data unnoticed, 2 noticed
	Win uint8
	// units dropped by this recovery
	Drop uint8
	// MySQL was restored and Redis lost data
	Both bool
	// remaining faults and decisions
	Loss, Restore, Death, Evict, Release, Define, GiveUp, Del, Late, Trim, Old, Fail uint8
}

type rulesOne struct {
	Name, Why string
	Want      string // "" holds; else a part of the expected violation
	Hole      bool   // the design as written; else a mutant

	// what the environment may do
	Claims, Total, Loss, Restore, Death, Evict, Release, Define, GiveUp, Del, Late, Trim, Old, Fail uint8
	Readers, Loaders, Procs                                                                         int
	Units2                                                                                          bool
	// durability
	Mysql bool
	// ids of the stream never repeat
	Fresh bool

	// the rules, true is right
	EventID, CAS, Seen, SeenUnits, GenEntry, GenMono, GenMax, BumpCAS, WaitTip, WaitHere, Token, GenCheck, EpochCheck, CollectLoad, CollectRecover bool
	ReadAll, Repeat, RelIdem, EvictApplied, ByRow, Drop, SeenAnswered, EpochMax, Renumber, GivenCAS, TrimmedInRedis, StartKnown, EntryCounts       bool
	Confirm, SnapCheck, FenceTells, Begin0, DedupInTx, LoadPending, Redo, GapReloads, GenNew                                                       bool
}

func rightOne() rulesOne {
	return rulesOne{
		Claims: 2, Total: 2, Loss: 1, Restore: 1, Readers: 1, Loaders: 1, Procs: 2,
		EventID: true, CAS: true, Seen: true, SeenUnits: true, GenEntry: true, GenMono: true, GenMax: true, BumpCAS: true, WaitTip: true, WaitHere: true, Token: true,
		GenCheck: true, EpochCheck: true, CollectLoad: true, CollectRecover: true, ReadAll: true, Repeat: true, RelIdem: true, EvictApplied: true,
		ByRow: true, Drop: true, SeenAnswered: true, EpochMax: true, Renumber: true, GivenCAS: true, TrimmedInRedis: true, StartKnown: true, EntryCounts: true,
		Confirm: true, SnapCheck: true, FenceTells: true, DedupInTx: true, LoadPending: true, Redo: true, GapReloads: true, GenNew: true,
	}
}

func visible(k uint8) bool { return k > kNone && k < kLastVisible }

func (r *rulesOne) start() one {
	var s one
	s.Loss, s.Restore, s.Death, s.Evict, s.Release, s.Define = r.Loss, r.Restore, r.Death, r.Evict, r.Release, r.Define
	s.GiveUp, s.Del, s.Late, s.Trim, s.Old, s.Fail = r.GiveUp, r.Del, r.Late, r.Trim, r.Old, r.Fail
	s.M.Tot, s.M.Ver, s.M.Epoch, s.M.Gen, s.M.Live = r.Total, 1, 1, 1, 1
	s.R.PGen = 1
	// The lot was loaded, and MySQL has applied it.
	r.write(&s, entry{Kind: kLoaded, Epoch: 1, Gen: 1, Ver: 1, Tot: r.Total})
	s.M.OffID, s.M.OffUID = s.Hist[0].ID, s.Hist[0].UID
	if r.Begin0 { // MySQL has applied nothing yet
		s.M.OffID, s.M.OffUID, s.M.Live = 0, 0, 0
	}
	for p := range r.Procs {
		s.P[p] = process{Alive: true}
		if r.StartKnown {
			s.P[p].SeenE = 1
		}
	}
	return s
}

func (r *rulesOne) fold(l *lotState, e *entry) {
	switch e.Kind {
	case kClaim:
		l.S, l.Q, l.Mask = e.S, e.Q, l.Mask|1<<e.Arg
	case kLoaded:
		p, o, t, i := l.PGen, l.OffKey, l.Trim, l.Tri
		*l = lotState{Has: true, Epoch: e.Epoch, Gen: e.Gen, S: e.S, Q: e.Q, Ret: e.Ret, Ver: e.Ver, Tot: e.Tot, Mask: e.Mask, Rel: e.Rel, Giv: e.Giv,
			PGen: p, OffKey: o, Trim: t, Tri: i}
	case kResumed:
		l.Epoch, l.S, l.Q, l.Fenced, l.Token = e.Epoch, e.S, e.Q, false, 0
	case kEvicted, kDel:
		*l = lotState{PGen: l.PGen, OffKey: l.OffKey, Trim: l.Trim, Tri: l.Tri}
	case kReleased:
		l.Rel, l.Ret = e.Rel, e.Ret
	case kChanged:
		l.Ver, l.Tot = e.Ver, e.Tot
	case kGiven:
		l.Giv, l.Ret = e.Giv, e.Ret
	case kGen, kGenEntry:
		l.PGen = e.Gen
	case kFence:
		if l.Has {
			l.Fenced = true
		}
		if l.Has || r.Token {
			l.Token = e.Arg
		}
	case kOff:
		l.OffKey = e.Arg
	case kTrim:
		l.Trim = e.Arg
		if e.Epoch == 1 {
			l.Tri = e.Arg
		}
	}
	if visible(e.Kind) && l.Has {
		l.LastID = e.ID
	}
}

func (r *rulesOne) room(s *one) bool { return s.NH < H }

func (s *one) tip() (id, uid uint8) {
	for i := int(s.NH) - 1; i >= 0; i-- {
		if visible(s.Hist[i].Kind) {
			return s.Hist[i].ID, s.Hist[i].UID
		}
	}
	return 0, 0
}

// inStream reports whether the stream has the entry. An offset
// of 0 is the start, which always exists.
func (r *rulesOne) inStream(s *one, id, uid uint8) bool {
	if id == 0 {
		return true
	}
	for i := range s.NH {
		if e := &s.Hist[i]; visible(e.Kind) && e.ID == id && e.ID > s.R.Trim {
			return e.UID == uid || !r.EventID
		}
	}
	return false
}

func (r *rulesOne) write(s *one, e entry) {
	if visible(e.Kind) {
		s.NU++
		e.UID = s.NU
		e.ID = 1
		if r.Fresh {
			for _, x := range []uint8{s.M.OffID, s.D.OffID, s.L[0].Tip, s.L[1].Tip, s.Rd[0].OffID, s.Rd[1].OffID, s.P[0].PendID, s.P[1].PendID} {
				e.ID = max(e.ID, x+1)
			}
			for i := range s.Rd {
				for j := range s.Rd[i].N {
					e.ID = max(e.ID, s.Rd[i].B[j].ID+1)
				}
			}
		}
		if id, _ := s.tip(); id >= e.ID {
			e.ID = id + 1
		}
		e.ID = max(e.ID, s.R.Trim+1)
	}
	s.Hist[s.NH] = e
	s.NH++
	r.fold(&s.R, &e)
}

func (s *one) units(mask uint8) (n uint8) {
	for c := range s.NClaims {
		if mask>>c&1 == 1 {
			n += s.Unit[c]
		}
	}
	return n
}

func count(mask uint8) (n uint8) {
	for ; mask > 0; mask &= mask - 1 {
		n++
	}
	return n
}

func (s *one) flagged(f uint8) (mask uint8) {
	for c := range s.NClaims {
		if s.Fl[c]&f != 0 {
			mask |= 1 << c
		}
	}
	return mask
}

// known is the claims with units that MySQL, Redis or a living process knows.
func (r *rulesOne) known(s *one) uint8 {
	var api uint8
	for p := range s.P {
		if s.P[p].Alive {
			api |= s.P[p].Know
		}
	}
	k := s.M.Rows&^s.M.Rel | s.R.Mask&^s.R.Rel | api&^s.M.Rows&^s.R.Mask
	return k &^ s.M.Rel &^ s.flagged(fReleased|fGivenUp)
}

func (r *rulesOne) live(s *one) bool { return s.R.Has && !s.R.Fenced && s.R.Gen == s.R.PGen }

func (s *one) lost() uint8 {
	sold := s.units(s.M.Rows) + s.M.Giv
	if s.M.SeenS > sold {
		return s.M.SeenS - sold
	}
	return 0
}

func (r *rulesOne) apply(s *one, e *entry, recovering bool) {
	m := &s.M
	switch e.Kind {
	case kClaim:
		if m.Rows>>e.Arg&1 == 1 {
			break
		}
		if r.Mysql && recovering && r.Drop {
			if s.units(m.Rows&^m.Rel)+s.Unit[e.Arg] > m.Tot {
				s.Drop += s.Unit[e.Arg]
				break
			}
		}
		m.Rows |= 1 << e.Arg
		if r.EntryCounts && e.S > s.Drop {
			m.SeenS, m.SeenQ = max(m.SeenS, e.S-s.Drop), max(m.SeenQ, e.Q)
		}
	case kLoaded, kResumed:
		m.Epoch = max(m.Epoch, e.Epoch)
		m.Live = 1
		if r.EntryCounts {
			m.SeenS, m.SeenQ = max(m.SeenS, e.S), max(m.SeenQ, e.Q)
		}
		if e.Kind == kLoaded && e.Ver >= m.Ver {
			r.defined(m, e.Ver, e.Tot)
		}
		if e.Kind == kResumed && e.Arg <= m.Redo { // it has what its load had
			m.Redo = max(m.Redo, e.Epoch)
		}
		if e.Kind == kLoaded && r.Redo {
			rel := m.Rel
			if r.LoadPending {
				rel &^= m.Out
			}
			// MySQL was restored to before the load's data
			if e.Mask != m.Rows || e.Rel != rel || e.Giv != m.Giv {
				m.Redo = max(m.Redo, e.Epoch)
			}
		}
	case kEvicted:
		m.Live = 0
	case kReleased:
		if r.Confirm {
			m.Out &^= 1 << e.Arg
		}
		m.Rel |= 1 << e.Arg & m.Rows
	case kChanged:
		if e.Ver >= m.Ver {
			r.defined(m, e.Ver, e.Tot)
		}
	case kGiven:
		m.Giv = max(m.Giv, e.Giv)
	case kGenEntry:
		m.Gen = max(m.Gen, e.Gen)
	}
	m.SeenS, m.SeenQ = max(m.SeenS, s.units(m.Rows)+m.Giv), max(m.SeenQ, count(m.Rows))
}

// defined: Redis has that definition.
func (r *rulesOne) defined(m *books, ver, tot uint8) {
	switch {
	case m.DefP == 0:
		m.Ver, m.Tot = ver, tot
	case ver == m.Ver && tot == m.Tot:
		m.DefP = 0
	case r.Renumber: // the change in transit takes the next number
		m.Ver = ver + 1
	case ver > m.Ver:
		m.Ver, m.Tot, m.DefP = ver, tot, 0
	}
}

func (r *rulesOne) lose(s *one, keep uint8) {
	for i := keep; i < s.NH; i++ {
		if s.Hist[i].Kind == kClaim {
			s.Fl[s.Hist[i].Arg] |= fLostR
		}
		s.Hist[i] = entry{}
	}
	s.NH = keep
	s.R = lotState{}
	for i := range keep {
		if i == 0 {
			s.R.PGen = 1
		}
		r.fold(&s.R, &s.Hist[i])
	}
	s.Win = 1
}

func (r *rulesOne) steps(s0 *one, e *emitter[one]) {
	s := *s0
	used := s.NH
	reserve := uint8(4) // writes that the system needs to get quiet
	env := used+reserve < H
	tipID, tipUID := s.tip()

	// --- API processes ---
	for p := range r.Procs {
		v := &s.P[p]
		if !v.Alive {
			continue
		}
		// a claim
		if env && s.NClaims < r.Claims && r.live(&s) && v.Pend == 0 {
			saw := r.Seen && (v.SeenE > s.R.Epoch || v.SeenE == s.R.Epoch && v.SeenQ > s.R.Q || r.SeenUnits && v.SeenS > s.R.S)
			if saw {
				n := s
				r.write(&n, entry{Kind: kFence, Arg: 9})
				n.Win = 2
				e.out(&n, false, "process %a saw more than Redis has: fence", p+1, 0)
			} else {
				for q := uint8(1); q <= 2; q++ {
					if q == 2 && !r.Units2 || s.R.S-s.R.Ret+q > s.R.Tot || s.R.S < s.R.Ret {
						continue
					}
					n := s
					c := n.NClaims
					n.NClaims++
					n.Unit[c] = q
					most := n.M.SeenS
					for o := range n.P {
						if n.P[o].Alive && o != p {
							most = max(most, n.P[o].SeenS)
						}
					}
					for x := range n.Rd { // a flush in progress
						for j := range n.Rd[x].N {
							most = max(most, n.Rd[x].B[j].S)
						}
					}
					if n.Win == 1 && most > n.R.S && v.SeenS <= n.R.S {
						n.Fl[c] |= fExposed
					}
					r.write(&n, entry{Kind: kClaim, Arg: c, Epoch: n.R.Epoch, S: n.R.S + q, Q: n.R.Q + 1})
					if !r.Mysql {
						if n.Fl[c]&fExposed == 0 {
							if k := n.units(r.known(&n) &^ n.flagged(fExposed)); k > n.R.Tot {
								e.bad(fmt.Sprintf("I1: %d units of known claims of a total of %d", k, n.R.Tot))
							}
						}
						d := n // the process dies before it has the reply
						d.P[p].SeenE, d.P[p].SeenQ, d.P[p].SeenS, d.P[p].Know = n.R.Epoch, n.R.Q, n.R.S, v.Know|n.R.Mask
						d.Fl[c] |= fAnswered
						e.out(&d, false, "process %a claims %b units: yes", p+1, int(q))
					} else {
						n.P[p].Pend, n.P[p].PendID, n.P[p].PE = c+1, n.Hist[n.NH-1].ID, n.R.Epoch
						n.P[p].PendS, n.P[p].PendQ = n.R.S, n.R.Q
						if !r.SeenAnswered {
							n.P[p].SeenE, n.P[p].SeenQ, n.P[p].SeenS = n.R.Epoch, n.R.Q, n.R.S
						}
						e.out(&n, false, "process %a claims %b units, waits for MySQL", p+1, int(q))
					}
				}
			}
		}
		// the answer in mode mysql
		if v.Pend > 0 {
			c := v.Pend - 1
			row := s.M.Rows>>c&1 == 1
			ok := row
			if !r.ByRow {
				ok = s.R.OffKey >= v.PendID
			}
			if ok {
				n := s
				n.Fl[c] |= fAnswered
				w := &n.P[p]
				if !row {
					e.bad("I2: answered by the key of the offset, and MySQL has no row")
				}
				if k := n.units(n.flagged(fAnswered) &^ n.flagged(fReleased) &^ (n.flagged(fLostR) & n.flagged(fMysqlLost))); k > max(n.M.Tot, n.R.Tot) {
					e.bad(fmt.Sprintf("I1 of mode mysql: %d units answered of %d", k, n.M.Tot))
				}
				if r.SeenAnswered { // what MySQL has is what it saw
					w.SeenE, w.SeenS, w.SeenQ = max(w.SeenE, w.PE), max(w.SeenS, n.units(n.M.Rows)+n.M.Giv), max(w.SeenQ, count(n.M.Rows))
				}
				w.Know |= 1 << c
				w.Pend, w.PendID, w.PendS, w.PendQ, w.PE = 0, 0, 0, 0, 0
				e.out(&n, true, "process %a answers yes to claim %b", p+1, int(c))
			} else {
				n := s
				w := &n.P[p]
				w.Pend, w.PendID, w.PendS, w.PendQ, w.PE = 0, 0, 0, 0, 0
				e.out(&n, true, "process %a answers 503 to claim %b", p+1, int(c))
			}
		}
		if (s.M.PS == 1 || !r.live(&s)) && (v.SeenS > s.M.SeenS || v.SeenE > s.M.SeenE && v.SeenE > s.M.Epoch) {
			n := s
			n.M.SeenS, n.M.SeenQ, n.M.SeenE = max(n.M.SeenS, v.SeenS), max(n.M.SeenQ, v.SeenQ), max(n.M.SeenE, v.SeenE)
			e.out(&n, true, "process %a writes what it saw: %b units", p+1, int(v.SeenS))
		}
		if s.Death > 0 {
			n := s
			n.Death--
			n.P[p] = process{Alive: true}
			if r.StartKnown {
				n.P[p].SeenE, n.P[p].SeenQ, n.P[p].SeenS, n.P[p].Know = s.M.Epoch, s.M.SeenQ, s.M.SeenS, s.M.Rows
			}
			e.out(&n, false, "process %a dies, another starts", p+1, 0)
		}
	}

	// --- readers ---
	for i := range r.Readers {
		d := &s.Rd[i]
		if i == 1 && d.Ph == 0 && s.Rd[0].Ph == 0 {
			continue
		}
		if d.Ph > 0 && d.Ph < 4 || d.Ph > 3 && s.Fail > 0 {
			n := s
			if d.Ph > 3 { // the next one takes a new generation
				n.Fail--
			}
			n.Rd[i] = reader{}
			e.out(&n, true, "reader %a dies", i+1, 0)
		}
		switch d.Ph {
		case 0:
			if s.M.PS == 1 {
				n := s
				if r.Readers == 2 && s.Rd[1-i].Ph > 2 {
					if s.Fail == 0 {
						break
					}
					n.Fail--
				}
				n.Rd[i] = reader{Ph: 3, OffID: s.M.OffID, OffUID: s.M.OffUID, Gen: s.M.Gen}
				e.out(&n, true, "reader %a goes on with the recovery", i+1, 0)
				break
			}
			if s.M.PS != 0 {
				break
			}
			known := s.R.Tri
			if !r.TrimmedInRedis {
				known = s.M.Trimmed
			}
			if s.M.OffID < known && s.M.OffID > 0 && !r.inStream(&s, s.M.OffID, s.M.OffUID) {
				n := s
				n.M.PS = 2
				e.out(&n, true, "reader %a: gap", i+1, 0)
				break
			}
			if !r.inStream(&s, s.M.OffID, s.M.OffUID) {
				n := s
				n.Rd[i] = reader{Ph: 2, OffID: s.M.OffID, OffUID: s.M.OffUID, Gen: s.M.Gen}
				e.out(&n, true, "reader %a: the entry at the offset is missing", i+1, 0)
				break
			}
			n := s
			x := &n.Rd[i]
			*x = reader{Ph: 1, OffID: s.M.OffID, OffUID: s.M.OffUID, Gen: s.M.Gen}
			for j := range s.NH {
				h := &s.Hist[j]
				if !visible(h.Kind) || h.ID <= s.M.OffID || h.ID <= s.R.Trim {
					continue
				}
				x.B[x.N] = *h
				x.N++
				c := n
				e.out(&c, true, "reader %a reads %b entries", i+1, int(x.N))
				if x.N == 2 {
					break
				}
			}
		case 1:
			n := s
			n.Rd[i] = reader{}
			if r.CAS && (s.M.OffID != d.OffID || s.M.OffUID != d.OffUID || s.M.PS != 0 || s.M.Gen != d.Gen) {
				e.out(&n, true, "reader %a: the offset has moved, nothing is written", i+1, 0)
				break
			}
			for j := range d.N {
				r.apply(&n, &d.B[j], false)
			}
			n.M.OffID, n.M.OffUID = d.B[d.N-1].ID, d.B[d.N-1].UID
			if !r.ByRow && r.room(&s) {
				n.Rd[i] = reader{Ph: 6, OffID: n.M.OffID}
			}
			e.out(&n, true, "reader %a commits %b entries", i+1, int(d.N))
		case 6:
			n := s
			n.Rd[i] = reader{}
			if r.room(&s) {
				r.write(&n, entry{Kind: kOff, Arg: d.OffID})
			}
			e.out(&n, true, "reader %a sets the key of the offset to %b", i+1, int(d.OffID))
		case 2:
			n := s
			n.Rd[i] = reader{}
			if s.M.OffID < s.R.Trim && s.M.OffID > 0 && s.M.OffID == d.OffID && s.M.OffUID == d.OffUID && s.M.PS == 0 {
				e.bad("a MySQL that is older than the stream was taken for a Redis that lost data")
			}
			if r.BumpCAS && (s.M.OffID != d.OffID || s.M.OffUID != d.OffUID || s.M.PS != 0 || s.M.Gen != d.Gen) {
				e.out(&n, true, "reader %a: the offset has moved", i+1, 0)
				break
			}
			n.M.Gen++
			if r.GenMax {
				n.M.Gen = max(n.M.Gen, s.R.PGen+1)
			}
			n.M.PS, n.M.Live = 1, 0
			n.Rd[i] = reader{Ph: 3, OffID: s.M.OffID, OffUID: s.M.OffUID, Gen: n.M.Gen}
			e.out(&n, true, "reader %a: MySQL has generation %b, all lots away", i+1, int(n.M.Gen))
		case 3:
			if !r.room(&s) {
				e.cut()
				break
			}
			n := s
			// another reader was here before, and MySQL may have been
			// restored since: a number is used once
			if r.GenNew && s.R.PGen >= d.Gen {
				n.Rd[i] = reader{}
				if s.M.PS == 1 && s.M.Gen == d.Gen {
					n.M.Gen = s.R.PGen + 1
				}
				e.out(&n, true, "reader %a: Redis has that generation, MySQL takes %b", i+1, int(n.M.Gen))
				break
			}
			n.Rd[i].Ph = 4
			if !r.GenMono || s.R.PGen < d.Gen {
				k := kGen
				if r.GenEntry {
					k = kGenEntry
				}
				r.write(&n, entry{Kind: k, Gen: d.Gen})
				n.Win = max(n.Win, n.Win*2)
				n.Win = min(n.Win, 2)
			}
			e.out(&n, true, "reader %a: Redis has generation %b", i+1, int(n.R.PGen))
		case 4:
			if s.M.PS != 1 || s.M.Gen != d.Gen {
				n := s
				n.Rd[i] = reader{}
				e.out(&n, true, "reader %a: somebody else recovered", i+1, 0)
				break
			}
			late := uint8(0)
			for p := range r.Procs {
				if s.P[p].Alive && s.P[p].SeenS > s.M.SeenS {
					late++
				}
			}
			if r.CollectRecover && late > 0 && s.Late == 0 {
				break
			}
			n := s
			if late > 0 && r.CollectRecover {
				n.Late--
			}
			x := &n.Rd[i]
			x.Ph, x.N = 5, 0
			x.B = [NB]entry{}
			fits, hasGen := true, false
			for j := range s.NH {
				h := &s.Hist[j]
				if !visible(h.Kind) || h.ID <= s.R.Trim {
					continue
				}
				hasGen = hasGen || h.Kind == kGenEntry && h.Gen == d.Gen
				if !r.ReadAll && h.ID <= d.OffID || !r.DedupInTx && h.Kind == kClaim && s.M.Rows>>h.Arg&1 == 1 || h.Kind == kGenEntry && j+1 < s.NH {
					continue
				}
				if x.N == NB {
					fits = false
					break
				}
				x.B[x.N] = *h
				x.N++
			}
			if !fits {
				e.cut()
				break
			}
			if s.M.OffID > 0 && s.M.OffID < s.R.Tri && r.TrimmedInRedis {
				n = s
				n.Rd[i] = reader{}
				n.M.PS = 2
				e.out(&n, true, "reader %a: gap", i+1, 0)
				break
			}
			if r.GenEntry && !hasGen {
				n = s
				n.Rd[i] = reader{}
				if s.M.PS == 1 && s.M.Gen == d.Gen {
					n.M.Gen = max(s.M.Gen, s.R.PGen) + 1
				}
				e.out(&n, true, "reader %a: the stream lacks the generation, MySQL has %b", i+1, int(n.M.Gen))
				break
			}
			if t, u := s.tip(); true { // the offset will be the tip
				x.Gen = d.Gen
				x.B[NB-1].ID, x.B[NB-1].UID = t, u
				if x.N == NB {
					e.cut()
					break
				}
			}
			e.out(&n, true, "reader %a reads all %b entries that MySQL may lack", i+1, int(x.N))
		case 5:
			n := s
			n.Rd[i] = reader{}
			if s.M.PS != 1 || r.CAS && (s.M.OffID != d.OffID || s.M.OffUID != d.OffUID || s.M.Gen != d.Gen) {
				e.out(&n, true, "reader %a: somebody else recovered", i+1, 0)
				break
			}
			for j := range d.N {
				r.apply(&n, &d.B[j], true)
			}
			n.Drop = 0
			n.M.OffID, n.M.OffUID, n.M.PS, n.M.Live = d.B[NB-1].ID, d.B[NB-1].UID, 0, 0
			e.out(&n, true, "reader %a commits the recovery: offset %b", i+1, int(n.M.OffID))
		}
	}

	// --- loads and resumes ---
	for i := range r.Loaders {
		l := &s.L[i]
		if i == 1 && l.Ph == 0 && s.L[0].Ph == 0 {
			continue
		}
		if l.Ph == 1 || l.Ph > 1 && s.Fail > 0 {
			n := s
			if l.Ph > 1 { // each death after taking a number takes another number
				n.Fail--
			}
			n.L[i] = loader{}
			if n.R.Token == uint8(i+1) {
				n.R.Token = 9
			}
			e.out(&n, true, "loader %a dies or starts again", i+1, 0)
		}
		switch l.Ph {
		case 0:
			if r.live(&s) || s.M.PS != 0 {
				break
			}
			if !r.room(&s) {
				e.cut()
				break
			}
			n := s
			if s.R.Has || r.Token {
				r.write(&n, entry{Kind: kFence, Arg: uint8(i + 1)})
			}
			x := &n.L[i]
			*x = loader{Ph: 1, Tip: tipID, TipUID: tipUID, Gen: s.R.PGen}
			if s.R.Has && s.R.Gen == s.R.PGen && s.R.Epoch > s.M.Redo {
				x.Resume = s.R.Epoch
			}
			if s.R.Has { // it was stopped, so others may have seen more: ask all
				x.Ask = 1
			}
			if r.FenceTells && s.R.Has { // what the fenced lot had sold is known now
				x.B.S, x.B.Q = s.R.S, s.R.Q
			}
			e.out(&n, true, "loader %a fences the lot, the tip is %b", i+1, int(tipID))
		case 1:
			if s.M.PS != 0 {
				break
			}
			if r.WaitTip && (s.M.OffID < l.Tip || r.WaitHere && !r.inStream(&s, s.M.OffID, s.M.OffUID)) {
				break
			}
			late := uint8(0)
			for p := range r.Procs {
				if s.P[p].Alive && s.P[p].SeenS > s.M.SeenS {
					late++
				}
			}
			ask := r.CollectLoad && l.Ask == 1
			if ask && late > 0 && s.Late == 0 {
				break
			}
			if s.M.Epoch > 9 { // loaders that refuse each other take numbers without end
				e.cut()
				break
			}
			n := s
			if ask && late > 0 {
				n.Late--
			}
			n.M.SeenS, n.M.SeenQ = max(n.M.SeenS, l.B.S), max(n.M.SeenQ, l.B.Q)
			n.M.Epoch++
			if r.EpochMax {
				n.M.Epoch = max(n.M.Epoch, s.M.SeenE+1)
			}
			x := &n.L[i]
			x.Ph, x.E, x.B = 2, n.M.Epoch, entry{}
			// not a lot that turned out to need a load
			if l.Resume > s.M.Redo && r.inStream(&s, s.M.OffID, s.M.OffUID) {
				x.B.S, x.B.Q = n.M.SeenS, n.M.SeenQ
				x.Ph = 3
			} else {
				x.Resume = 0
			}
			e.out(&n, true, "loader %a takes number %b", i+1, int(n.M.Epoch))
		case 2:
			n := s
			if r.SnapCheck && s.M.Epoch != l.E {
				n.L[i] = loader{}
				e.out(&n, true, "loader %a: its number is not the newest", i+1, 0)
				break
			}
			x := &n.L[i]
			x.Ph = 3
			m := &s.M
			x.B = entry{Kind: kLoaded, Epoch: l.E, Gen: l.Gen, S: m.SeenS, Q: m.SeenQ, Ver: m.Ver, Tot: m.Tot, Mask: m.Rows, Rel: m.Rel, Giv: m.Giv}
			// release.lua applies a decision in the outbox after the load
			if r.LoadPending {
				x.B.Rel &^= m.Out
			}
			x.B.Ret = s.units(x.B.Rel) + m.Giv
			e.out(&n, true, "loader %a has read the rows", i+1, 0)
		case 3:
			if !r.room(&s) {
				e.cut()
				break
			}
			n := s
			n.L[i] = loader{}
			mine := s.R.Token == uint8(i+1) || !r.Token
			if n.R.Token == uint8(i+1) {
				n.R.Token = 9
			}
			isLive := s.R.Has && !s.R.Fenced && s.R.Gen == s.R.PGen
			if isLive || !mine || r.EpochCheck && s.R.Has && s.R.Epoch >= l.E || r.GenCheck && s.R.PGen != l.Gen {
				e.out(&n, true, "load.lua of %a refuses", i+1, 0)
				break
			}
			if l.Resume > 0 {
				if !s.R.Has || !s.R.Fenced || s.R.Epoch != l.Resume || s.R.Gen != s.R.PGen {
					e.out(&n, true, "resume.lua of %a refuses", i+1, 0)
					break
				}
				r.write(&n, entry{Kind: kResumed, Arg: l.Resume, Epoch: l.E, S: max(s.R.S, l.B.S), Q: max(s.R.Q, l.B.Q)})
			} else {
				b := l.B
				if !r.GenCheck {
					b.Gen = s.R.PGen
				}
				r.write(&n, b)
			}
			if n.Win == 2 {
				n.Win = 0
				if !r.inStream(&n, n.M.OffID, n.M.OffUID) {
					n.Win = 1
				}
				for x := range n.Rd {
					// a flush in progress when Redis lost data, noticed at
					// the reader's next read
					for j := range n.Rd[x].N {
						if b := &n.Rd[x].B[j]; n.Rd[x].Ph == 1 && b.Kind == kClaim && n.R.Mask>>b.Arg&1 == 0 {
							n.Win = 1
						}
					}
				}
				for p := range n.P {
					if n.P[p].Alive && n.P[p].SeenS > n.R.S && (r.Late > n.Late || l.Ask == 0 && (r.Del > n.Del || n.Both)) {
						// a process slept through the second in which all
						// write what they saw
						n.Win = 1
					}
				}
			}
			e.out(&n, true, "loader %a: the lot is live under epoch %b", i+1, int(l.E))
		}
	}

	// --- what MySQL decides ---
	for c := range s.NClaims {
		bit := uint8(1) << c
		if s.Release > 0 && s.M.Rows&bit != 0 && s.M.Rel&bit == 0 && s.M.PS == 0 && s.Fl[c]&fReleased == 0 {
			n := s
			n.Release--
			n.M.Rel |= bit
			n.M.Out |= bit
			n.Fl[c] |= fReleased
			e.out(&n, false, "MySQL releases claim %b", 0, int(c))
		}
		old := s.Old > 0 && s.Fl[c]&fReleased != 0
		if (s.M.Out&bit != 0 || old) && r.live(&s) && s.R.Mask&bit != 0 {
			n := s
			if s.M.Out&bit == 0 {
				n.Old--
			}
			pending := false
			for j := range s.NH {
				pending = pending || s.Hist[j].Kind == kReleased && s.Hist[j].Arg == c && s.Hist[j].ID > s.M.OffID
			}
			done := s.R.Rel&bit != 0 && r.RelIdem
			switch {
			case !r.room(&s):
				e.cut()
			case pending && done:
			case done && !r.Repeat:
			default:
				x := entry{Kind: kReleased, Arg: c, Rel: s.R.Rel | bit, Ret: s.R.Ret}
				if !done {
					x.Ret += s.Unit[c]
					if s.R.Rel&bit != 0 {
						e.bad("I5: a release gave quota back twice")
					}
				}
				r.write(&n, x)
				if !r.Confirm {
					n.M.Out &^= bit // by the reply
				}
				e.out(&n, s.M.Out&bit != 0, "release.lua of claim %b", 0, int(c))
			}
		}
	}
	if s.Define > 0 && s.M.PS == 0 && env {
		n := s
		n.Define--
		n.M.Ver, n.M.DefP = n.M.Ver+1, 1
		n.M.Tot = r.Total + 2 - s.Define // each change has another total
		e.out(&n, false, "MySQL: version %a, total %b", int(n.M.Ver), int(n.M.Tot))
	}
	if s.M.DefP == 1 && r.live(&s) {
		n := s
		pending := false
		for j := range s.NH {
			pending = pending || s.Hist[j].Kind == kChanged && s.Hist[j].Ver == s.M.Ver && s.Hist[j].Tot == s.M.Tot && s.Hist[j].ID > s.M.OffID
		}
		switch {
		case pending:
		case s.M.Ver > s.R.Ver || s.M.Ver == s.R.Ver && s.M.Tot == s.R.Tot && r.Repeat:
			if !r.room(&s) {
				e.cut()
				break
			}
			r.write(&n, entry{Kind: kChanged, Ver: s.M.Ver, Tot: s.M.Tot})
			e.out(&n, true, "adjust.lua: version %a, total %b", int(s.M.Ver), int(s.M.Tot))
		case r.Renumber && !(s.M.Ver == s.R.Ver && s.M.Tot == s.R.Tot):
			n.M.Ver = s.R.Ver + 1
			e.out(&n, true, "the change takes the next version, %a", int(n.M.Ver), 0)
		}
	}
	if s.R.Epoch <= s.M.Redo && s.R.Has && !s.R.Fenced && s.M.PS == 0 {
		if r.room(&s) {
			n := s
			r.write(&n, entry{Kind: kFence, Arg: 9})
			e.out(&n, true, "the lot was loaded from rows that MySQL lacks: fence", 0, 0)
		} else {
			e.cut()
		}
	}
	// an operator gives up lost claims
	if lost := s.lost(); s.GiveUp > 0 && lost > 0 && r.live(&s) && s.M.PS == 0 && s.R.Epoch > s.M.Redo && env && s.M.OffID == tipID && s.M.OffUID == tipUID || r.GiveUp > s.GiveUp && !r.GivenCAS && s.GiveUp > 0 && lost > 0 && r.live(&s) {
		if !r.GivenCAS || s.R.Giv == s.M.Giv && s.R.S == s.M.SeenS {
			n := s
			n.GiveUp--
			for c := range s.NClaims {
				if (s.M.Rows|s.R.Mask)>>c&1 == 0 {
					n.Fl[c] |= fGivenUp
				}
			}
			r.write(&n, entry{Kind: kGiven, Giv: s.R.Giv + lost, Ret: s.R.Ret + lost})
			if n.R.Giv > n.M.SeenS {
				e.bad("I1: more units were given up than were lost")
			}
			e.out(&n, false, "an operator gives up %b units", 0, int(lost))
		}
	}
	// eviction
	if s.Evict > 0 && r.live(&s) && env && s.M.PS == 0 && (!r.EvictApplied || s.R.LastID <= s.M.OffID) {
		n := s
		n.Evict--
		r.write(&n, entry{Kind: kEvicted, Epoch: s.R.Epoch})
		e.out(&n, false, "evict.lua", 0, 0)
	}
	// trimming: MySQL or Redis has the mark first
	if s.Trim > 0 && s.M.PS == 0 && env && r.inStream(&s, s.M.OffID, s.M.OffUID) && s.M.OffID > s.R.Trim+1 {
		n := s
		n.Trim--
		n.M.Trimmed = s.M.OffID - 1
		r.write(&n, entry{Kind: kTrim, Arg: s.M.OffID - 1, Epoch: 1})
		e.out(&n, false, "the stream is trimmed up to %b", 0, int(s.M.OffID-1))
	}
	if s.M.PS == 2 { // gap: the operator accepts
		n := s
		n.M.PS = 0
		for j := range s.NH {
			h := &s.Hist[j]
			if visible(h.Kind) && h.ID > s.R.Trim {
				n.M.OffID, n.M.OffUID = h.ID, h.UID
				r.apply(&n, h, false)
				break
			}
		}
		if s.R.Has {
			n.M.SeenS, n.M.SeenQ = max(n.M.SeenS, s.R.S), max(n.M.SeenQ, s.R.Q)
		}
		if r.GapReloads { // the rest is rule 5
			n.M.PS, n.M.Live, n.M.Gen = 1, 0, max(n.M.Gen, s.R.PGen)+1
		}
		e.out(&n, true, "an operator accepts the gap: offset %b", 0, int(n.M.OffID))
	}

	// --- faults ---
	if s.Loss > 0 {
		for k := range s.NH {
			n := s
			n.Loss--
			r.lose(&n, k)
			if n.R == s.R && k > 0 && !visible(s.Hist[k].Kind) {
				continue
			}
			if s.Restore < r.Restore {
				n.Both = true
			}
			e.out(&n, false, "Redis goes back to %a of %b writes", int(k), int(s.NH))
		}
	}
	if s.Del > 0 && s.R.Has && env {
		n := s
		n.Del--
		r.write(&n, entry{Kind: kDel})
		e.out(&n, false, "the keys of the lot are deleted", 0, 0)
	}
	if !s.Dumped && s.Restore > 0 {
		n := s
		n.Dumped, n.D = true, s.M
		e.out(&n, false, "MySQL is dumped", 0, 0)
	}
	if s.Dumped && s.Restore > 0 && s.D != s.M {
		n := s
		n.Restore--
		n.M, n.Dumped = s.D, false
		n.D = books{}
		for c := range s.NClaims {
			if s.M.Rows>>c&1 == 1 && n.M.Rows>>c&1 == 0 {
				n.Fl[c] |= fMysqlLost
			}
		}
		if s.Loss < r.Loss {
			n.Both = true
		}
		e.out(&n, false, "MySQL is restored to offset %b", 0, int(n.M.OffID))
	}
}

func (r *rulesOne) canon(s *one) {
	if s.Restore == 0 {
		s.D, s.Dumped = books{}, false
	}
	// Writes that no rollback can reach and no reader reads again
	// are dropped.
	if s.Loss == 0 {
		k := uint8(0)
		drop := s.M.PS == 0 && !s.Dumped && s.Restore == 0 && s.M.OffID > 0 && r.inStream(s, s.M.OffID, s.M.OffUID)
		for i := range s.Rd {
			drop = drop && s.Rd[i].Ph == 0
		}
		for i := range s.NH {
			h := s.Hist[i]
			if !visible(h.Kind) || drop && h.ID < s.M.OffID {
				continue
			}
			s.Hist[k] = h
			k++
		}
		for i := k; i < s.NH; i++ {
			s.Hist[i] = entry{}
		}
		s.NH = k
	}
	{ // generations by their rank
		var has [256]bool
		all := func(f func(g *uint8)) {
			f(&s.M.Gen)
			f(&s.D.Gen)
			f(&s.R.PGen)
			f(&s.R.Gen)
			for i := range s.NH {
				f(&s.Hist[i].Gen)
			}
			for i := range s.Rd {
				f(&s.Rd[i].Gen)
				for j := range s.Rd[i].N {
					f(&s.Rd[i].B[j].Gen)
				}
			}
			for i := range s.L {
				f(&s.L[i].Gen)
				f(&s.L[i].B.Gen)
			}
		}
		all(func(g *uint8) { has[*g] = true })
		var rank [256]uint8
		k := uint8(0)
		for g := 1; g < 256; g++ {
			if has[g] {
				k++
				rank[g] = k
			}
		}
		all(func(g *uint8) { *g = rank[*g] })
	}
	var uids [256]uint8
	n := uint8(0)
	name := func(u *uint8) {
		if *u == 0 {
			return
		}
		if uids[*u] == 0 {
			n++
			uids[*u] = n
		}
		*u = uids[*u]
	}
	for i := range s.NH {
		name(&s.Hist[i].UID)
	}
	name(&s.M.OffUID)
	name(&s.D.OffUID)
	for i := range s.Rd {
		name(&s.Rd[i].OffUID)
		for j := range s.Rd[i].B {
			name(&s.Rd[i].B[j].UID)
		}
	}
	for i := range s.L {
		name(&s.L[i].TipUID)
	}
	s.NU = n
	if s.R.Token != 0 && s.R.Token != 9 && s.L[s.R.Token-1].Ph == 0 {
		s.R.Token = 9
	}
}

func (r *rulesOne) quiet(s *one) (bool, string) {
	id, uid := s.tip()
	if s.M.PS != 0 || s.M.OffID != id || s.M.OffUID != uid && r.EventID || !r.live(s) || s.M.Out != 0 || s.M.DefP != 0 || s.R.Epoch <= s.M.Redo {
		return false, ""
	}
	for i := range s.Rd {
		if s.Rd[i].Ph != 0 {
			return false, ""
		}
	}
	for i := range s.L {
		if s.L[i].Ph != 0 {
			return false, ""
		}
	}
	for p := range s.P {
		if s.P[p].Pend != 0 {
			return false, ""
		}
	}
	if s.Win == 1 || s.Both { // an unnoticed loss: a process that saw more may still call
		for p := range s.P {
			if s.P[p].Alive && s.P[p].SeenS > s.R.S {
				return true, ""
			}
		}
	}
	m := &s.M
	sold := max(m.SeenS, s.units(m.Rows)+m.Giv)
	switch {
	case s.R.Mask&^m.Rows != 0:
		return true, "I6: Redis has a claim that MySQL lacks"
	case m.Rows&^s.R.Mask != 0 && s.units(m.Rows) > s.R.S:
		return true, "I6: MySQL has a claim that Redis lacks"
	case m.Rows&^s.R.Mask != 0 && s.Win == 0 && !r.Mysql:
		return true, "I6: MySQL has a claim that Redis lacks"
	case s.R.S != sold:
		return true, fmt.Sprintf("I6: Redis has sold %d, MySQL %d", s.R.S, sold)
	case s.R.Ret != s.units(m.Rel)+m.Giv:
		return true, fmt.Sprintf("I6: Redis has taken back %d, MySQL %d", s.R.Ret, s.units(m.Rel)+m.Giv)
	case s.R.Ver != m.Ver || s.R.Tot != m.Tot:
		return true, fmt.Sprintf("definitions: Redis has version %d, total %d, MySQL %d, %d", s.R.Ver, s.R.Tot, m.Ver, m.Tot)
	case r.Mysql && s.lost() > 0 && s.Restore == r.Restore:
		return true, "I5: units are withheld that nobody was told he has"
	}
	answered := s.flagged(fAnswered)
	if r.Mysql {
		for c := range s.NClaims {
			if answered>>c&1 == 1 && m.Rows>>c&1 == 0 && (s.Fl[c]&fMysqlLost == 0 || s.Fl[c]&fLostR == 0) {
				return true, fmt.Sprintf("I2: claim %d was answered and has no row", c)
			}
		}
	} else {
		var know uint8
		for p := range s.P {
			if s.P[p].Alive {
				know |= s.P[p].Know
			}
		}
		gone := s.units(answered & know &^ m.Rows &^ s.flagged(fGivenUp|fReleased|fExposed))
		if gone > s.lost()+s.units(s.flagged(fExposed)) {
			return true, fmt.Sprintf("I2: %d units of answered claims are gone, %d are counted", gone, s.lost())
		}
		for c := range s.NClaims {
			if answered>>c&1 == 1 && m.Rows>>c&1 == 0 && s.Fl[c]&(fMysqlLost|fLostR) == 0 {
				return true, fmt.Sprintf("I2: claim %d has no row and neither server lost data", c)
			}
		}
	}
	return true, ""
}

func (r *rulesOne) show(s *one) string {
	var b strings.Builder
	b.WriteString("stream:")
	for i := range s.NH {
		h := &s.Hist[i]
		if visible(h.Kind) {
			fmt.Fprintf(&b, " %d/%d:%s", h.ID, h.UID, kinds[h.Kind])
			if h.Kind == kClaim {
				fmt.Fprintf(&b, "(%d)", h.Arg)
			}
		} else {
			fmt.Fprintf(&b, " [%s %d]", kinds[h.Kind], h.Arg+h.Gen)
		}
	}
	l, m := &s.R, &s.M
	fmt.Fprintf(&b, " · lot: has %v fenced %v epoch %d gen %d/%d sold %d back %d v%d total %d claims %b", l.Has, l.Fenced, l.Epoch, l.Gen, l.PGen, l.S, l.Ret, l.Ver, l.Tot, l.Mask)
	fmt.Fprintf(&b, " · MySQL: offset %d/%d gen %d state %d epoch %d sold %d rows %b released %b outbox %b given %d v%d total %d", m.OffID, m.OffUID, m.Gen, m.PS, m.Epoch, m.SeenS,
		m.Rows, m.Rel, m.Out, m.Giv, m.Ver, m.Tot)
	for p := range s.P {
		fmt.Fprintf(&b, " · p%d saw %d/%d", p+1, s.P[p].SeenE, s.P[p].SeenS)
	}
	return b.String()
}

// ---- model two: two lots on two partitions move units
// ---------------------------------------------------------------------------

const (
	H2 = 9 // writes in a history
	N2 = 3 // claims
	M2 = 2 // moves
)

const (
	jClaim uint8 = iota + 1
	jReleased
	jDebit
	jCredit
	jLoaded
	jGen
	jFence // no entry
)

var kinds2 = [...]string{"-", "claim", "released", "debited", "credited", "loaded", "generation", "fence"}

type entry2 struct{ Kind, UID, Arg, Epoch, Mask, Rel, In, Out uint8 }

type lot2 struct {
	Has, Fenced bool
	// In, Out: moves; Cred: those that credit.lua and debit.lua know
	// by id, of this epoch
	Epoch, Mask, Rel, In, Out, Cred uint8
}

type books2 struct {
	Off   [2]uint8 // index, 1 is the first write; uid beside it
	UID   [2]uint8
	Rec   [2]bool
	Epoch [2]uint8
	Redo  [2]uint8 // loads up to this number must be redone
	Rows  uint8
	Rel   uint8
	Outb  uint8
	Deb   uint8
	Cred  uint8
}

type look2 struct{ Epoch, Mask, Rel, In, Out uint8 }

type two struct {
	Hist       [2][H2]entry2
	NH         [2]uint8
	R          [2]lot2
	M, D       books2
	Dumped     bool
	Win        [2]bool
	On         uint8 // claims on lot 1
	Exp        uint8 // exposed claims
	Told       uint8 // released
	Dir        uint8 // moves from lot 1 to lot 0
	NC, NM, NU uint8
	// a sleeping mover: 1 + move, epoch
	Stale                                                      [3]uint8
	PPh                                                        uint8
	PZero                                                      bool
	P1, P2                                                     [2]look2
	Loss, Restore, Claims, Moves, Release, Proofs, Sleep, Both uint8
	LossOn                                                     [2]uint8
}

type rulesTwo struct {
	Name                                                                                                                                              string
	Deal                                                                                                                                              [2]uint8
	Loss, Restore, Claims, Moves, Release, Proofs, Sleep                                                                                              uint8
	WaitDebit, Idem, TakerEpoch, EpochFromSQL, Proves, ProvesRedo, Redo, TwoReads, OutIn, LoadPending, Finish, WaitTip, DropDebit, WaitAll, CreditTip bool
}

func rightTwo() rulesTwo {
	return rulesTwo{Deal: [2]uint8{1, 1}, Loss: 1, Restore: 1, Claims: 3, Moves: 1,
		WaitDebit: true, Idem: true, TakerEpoch: true, EpochFromSQL: true, Proves: true, ProvesRedo: true, Redo: true, TwoReads: true, OutIn: true, LoadPending: true,
		Finish: true, WaitTip: true, DropDebit: true, WaitAll: true, CreditTip: true}
}

func (r *rulesTwo) start() two {
	var s two
	s.Loss, s.Restore, s.Claims, s.Moves, s.Release, s.Proofs, s.Sleep = r.Loss, r.Restore, r.Claims, r.Moves, r.Release, r.Proofs, r.Sleep
	for i := range 2 {
		r.write(&s, i, entry2{Kind: jLoaded, Epoch: 1})
		s.M.Off[i], s.M.UID[i], s.M.Epoch[i] = 1, s.Hist[i][0].UID, 1
	}
	return s
}

func (r *rulesTwo) fold(l *lot2, e *entry2) {
	switch e.Kind {
	case jClaim:
		l.Mask |= 1 << e.Arg
	case jReleased:
		l.Rel |= 1 << e.Arg
	case jDebit:
		l.Out |= 1 << e.Arg
		l.Cred |= 1 << e.Arg
	case jCredit:
		l.In |= 1 << e.Arg
		l.Cred |= 1 << e.Arg
	case jLoaded:
		*l = lot2{Has: true, Epoch: e.Epoch, Mask: e.Mask, Rel: e.Rel, In: e.In, Out: e.Out}
	case jGen, jFence:
		l.Fenced = l.Has
	}
}

func (r *rulesTwo) write(s *two, i int, e entry2) {
	if e.Kind != jFence {
		s.NU++
		e.UID = s.NU
	}
	s.Hist[i][s.NH[i]] = e
	s.NH[i]++
	r.fold(&s.R[i], &e)
}

func (r *rulesTwo) free(s *two, i int, l *lot2) int {
	return int(r.Deal[i]) + int(count(l.In)) - int(count(l.Out)) - int(count(l.Mask)) + int(count(l.Rel))
}

func (s *two) live(i int) bool { return s.R[i].Has && !s.R[i].Fenced }

func (s *two) dir(m uint8) (from, to int) {
	f := int(s.Dir >> m & 1)
	return f, 1 - f
}

func (s *two) here(i int) bool { // the entry at the offset is in the stream
	p := s.M.Off[i]
	return p <= s.NH[i] && s.Hist[i][p-1].UID == s.M.UID[i]
}

func (r *rulesTwo) room(s *two, i int, n uint8) bool { return s.NH[i]+n <= H2 }

func (s *two) of(i int) uint8 { // claims of a lot
	if i == 1 {
		return s.On
	}
	return ^s.On
}

func (s *two) moves(mask uint8, i int, in bool) (out uint8) {
	for m := range s.NM {
		f, t := s.dir(m)
		if mask>>m&1 == 1 && (in && t == i || !in && f == i) {
			out |= 1 << m
		}
	}
	return out
}

func (r *rulesTwo) apply(s *two, i int, e *entry2) {
	m := &s.M
	bit := uint8(1) << e.Arg
	switch e.Kind {
	case jDebit:
		// units sold by rows were not free: no lot has them, as no
		// credit comes before its debit is applied
		if m.Rec[i] && r.DropDebit && m.Deb&bit == 0 {
			rows := m.Rows & s.of(i)
			if int(r.Deal[i])+int(count(s.moves(m.Cred, i, true)))-int(count(s.moves(m.Deb, i, false)))-int(count(rows))+int(count(rows&m.Rel)) < 1 {
				break
			}
		}
		m.Deb |= bit
	case jClaim:
		m.Rows |= bit
	case jReleased:
		m.Outb &^= bit
		m.Rel |= bit & m.Rows
	case jCredit:
		m.Cred |= bit
		if m.Deb&bit == 0 && r.Proves { // a credit proves its debit
			m.Deb |= bit
			if r.ProvesRedo {
				f, _ := s.dir(e.Arg)
				m.Redo[f] = m.Epoch[f]
			}
		}
	case jLoaded:
		m.Epoch[i] = max(m.Epoch[i], e.Epoch)
		rel := m.Rel & s.of(i)
		if r.LoadPending {
			rel &^= m.Outb
		}
		if r.Redo && (e.Mask != m.Rows&s.of(i) || e.Rel != rel || e.In != s.moves(m.Cred, i, true) || e.Out != s.moves(m.Deb, i, false)) {
			m.Redo[i] = max(m.Redo[i], e.Epoch)
		}
	}
}

func (s *two) knownClaims() uint8 {
	return (s.M.Rows&^s.M.Rel | s.R[0].Mask&^s.R[0].Rel | s.R[1].Mask&^s.R[1].Rel) &^ s.M.Rel &^ s.Told
}

func (r *rulesTwo) stock(s *two) (n int) {
	for i := range 2 {
		n += max(0, r.free(s, i, &s.R[i]))
	}
	for m := range s.NM {
		f, t := s.dir(m)
		if s.R[f].Out>>m&1 == 1 && s.R[t].In>>m&1 == 0 {
			n++
		}
	}
	return n
}

func (r *rulesTwo) steps(s0 *two, e *emitter[two]) {
	s := *s0
	out := func(n *two, sys bool, code string, a, b int) {
		if n.PPh > 0 && r.stock(n) <= 0 {
			n.PZero = true
		}
		e.out(n, sys, code, a, b)
	}
	for i := range 2 {
		l := &s.R[i]
		env := r.room(&s, i, 5)
		if s.Claims > 0 && env && s.live(i) && r.free(&s, i, l) > 0 {
			n := s
			c := n.NC
			n.NC++
			n.Claims--
			if i == 1 {
				n.On |= 1 << c
			}
			if s.Win[i] { // Redis lost data, and MySQL or the other lot knows more of this one
				more := s.M.Rows&s.of(i)&^l.Mask != 0 || s.moves(s.M.Deb, i, false)&^l.Out != 0 || s.moves(s.R[1-i].In, i, false)&^l.Out != 0
				if more {
					n.Exp |= 1 << c
				}
			}
			r.write(&n, i, entry2{Kind: jClaim, Arg: c})
			if n.Exp>>c&1 == 0 {
				if k := count(n.knownClaims() &^ n.Exp); k > r.Deal[0]+r.Deal[1] {
					e.bad(fmt.Sprintf("I1: %d claims of a total of %d", k, r.Deal[0]+r.Deal[1]))
				}
			}
			out(&n, false, "a claim on lot %a", i+1, 0)
		}
		// moves
		if s.Moves > 0 && env && s.live(i) && r.free(&s, i, l) > 0 {
			n := s
			m := n.NM
			n.NM++
			n.Moves--
			n.Dir |= uint8(i) << m
			r.write(&n, i, entry2{Kind: jDebit, Arg: m})
			out(&n, false, "debit.lua on lot %a, move %b", i+1, int(m))
		}
		// the reader
		switch {
		case s.M.Rec[i]:
			n := s
			for p := range s.NH[i] {
				r.apply(&n, i, &s.Hist[i][p])
			}
			n.M.Rec[i] = false
			p := s.NH[i]
			for p > 0 && s.Hist[i][p-1].Kind == jFence {
				p--
			}
			has := false
			for q := range s.NH[i] {
				has = has || s.Hist[i][q].Kind == jGen
			}
			if has {
				n.M.Off[i], n.M.UID[i] = p, s.Hist[i][p-1].UID
				out(&n, true, "partition %a is recovered", i+1, 0)
			} else if r.room(&s, i, 1) {
				n = s
				r.write(&n, i, entry2{Kind: jGen})
				out(&n, true, "partition %a: generation", i+1, 0)
			} else {
				e.cut()
			}
		case !s.here(i):
			if r.room(&s, i, 1) {
				n := s
				r.write(&n, i, entry2{Kind: jGen})
				n.M.Rec[i] = true
				out(&n, true, "partition %a lacks the entry at the offset: generation", i+1, 0)
			} else {
				e.cut()
			}
		default:
			p := s.M.Off[i]
			for p < s.NH[i] && s.Hist[i][p].Kind == jFence {
				p++
			}
			if p < s.NH[i] {
				n := s
				r.apply(&n, i, &s.Hist[i][p])
				n.M.Off[i], n.M.UID[i] = p+1, s.Hist[i][p].UID
				out(&n, true, "the reader of partition %a applies "+kinds2[s.Hist[i][p].Kind], i+1, 0)
			}
		}
		// fence what must be reloaded
		if rd := s.M.Redo[i]; l.Epoch <= rd && s.live(i) && !s.M.Rec[i] {
			if r.room(&s, i, 1) {
				n := s
				r.write(&n, i, entry2{Kind: jFence})
				out(&n, true, "lot %a is to be loaded again: fence", i+1, 0)
			} else {
				e.cut()
			}
		}
		// a load, once MySQL is at the tip
		atTip := s.here(i)
		for p := s.M.Off[i]; p < s.NH[i]; p++ {
			atTip = atTip && s.Hist[i][p].Kind == jFence
		}
		if r.WaitAll { // the other stream may have credits that prove debits of this lot
			atTip = atTip && s.here(1-i) && !s.M.Rec[1-i]
			for p := s.M.Off[1-i]; p < s.NH[1-i]; p++ {
				atTip = atTip && s.Hist[1-i][p].Kind == jFence
			}
		}
		if !s.live(i) && !s.M.Rec[i] && s.here(i) && (atTip || !r.WaitTip) {
			if r.room(&s, i, 1) {
				n := s
				n.M.Epoch[i]++
				rel := s.M.Rel & s.of(i)
				if r.LoadPending {
					rel &^= s.M.Outb
				}
				x := entry2{Kind: jLoaded, Epoch: n.M.Epoch[i], Mask: s.M.Rows & s.of(i), Rel: rel, In: s.moves(s.M.Cred, i, true), Out: s.moves(s.M.Deb, i, false)}
				r.write(&n, i, x)
				n.Win[i] = false
				out(&n, true, "lot %a is loaded", i+1, 0)
			} else {
				e.cut()
			}
		}
		// faults
		if s.Loss > 0 {
			for k := range s.NH[i] {
				n := s
				n.Loss--
				n.NH[i] = k
				n.R[i] = lot2{}
				for p := range n.Hist[i] {
					if p >= int(k) {
						n.Hist[i][p] = entry2{}
					} else {
						r.fold(&n.R[i], &n.Hist[i][p])
					}
				}
				n.Win[i] = true
				if s.Restore < r.Restore {
					n.Both = 1
				}
				out(&n, false, "Redis of lot %a goes back to %b writes", i+1, int(k))
			}
		}
	}
	for m := range s.NM {
		f, t := s.dir(m)
		bit := uint8(1) << m
		// when a credit is allowed: MySQL has the debit and no credit
		can := s.M.Deb&bit != 0 && s.M.Cred&bit == 0
		if !r.WaitDebit {
			can = s.R[f].Out&bit != 0 && s.M.Cred&bit == 0
		}
		if r.CreditTip {
			can = can && s.here(f) && !s.M.Rec[f] && s.M.Epoch[f] > s.M.Redo[f]
			for p := s.M.Off[f]; p < s.NH[f]; p++ {
				can = can && s.Hist[f][p].Kind == jFence
			}
		}
		epoch := s.M.Epoch[t]
		if !r.EpochFromSQL {
			epoch = s.R[t].Epoch
		}
		credit := func(epoch uint8, sys bool, n two) {
			l := &n.R[t]
			if !s.live(t) || r.TakerEpoch && l.Epoch != epoch {
				return
			}
			pending := false
			for p := range s.NH[t] {
				x := &s.Hist[t][p]
				pending = pending || x.Kind == jCredit && x.Arg == m && p >= s.M.Off[t]
			}
			if l.Cred&bit != 0 && r.Idem {
				if pending {
					return
				}
			} else if l.In&bit != 0 {
				e.bad("a move was credited twice")
			}
			if !r.room(&s, t, 1) {
				e.cut()
				return
			}
			r.write(&n, t, entry2{Kind: jCredit, Arg: m})
			out(&n, sys, "credit.lua on lot %a, move %b", t+1, int(m))
		}
		redo := s.M.Epoch[t] <= s.M.Redo[t] && r.EpochFromSQL
		if can && !redo && r.Finish {
			credit(epoch, true, s)
			if s.Sleep > 0 {
				n := s
				n.Sleep--
				n.Stale = [3]uint8{m + 1, epoch}
				out(&n, false, "a mover falls asleep before credit.lua of move %b", 0, int(m))
			}
		}
		if s.Stale[0] == m+1 {
			n := s
			n.Stale = [3]uint8{}
			credit(s.Stale[1], false, n)
		}
	}
	// releases
	for c := range s.NC {
		bit := uint8(1) << c
		i := int(s.On >> c & 1)
		if s.Release > 0 && s.M.Rows&bit != 0 && s.M.Rel&bit == 0 {
			n := s
			n.Release--
			n.M.Rel |= bit
			n.M.Outb |= bit
			n.Told |= bit
			out(&n, false, "MySQL releases claim %b", 0, int(c))
		}
		if s.M.Outb&bit != 0 && s.live(i) && s.R[i].Mask&bit != 0 {
			pending := false
			for p := range s.NH[i] {
				x := &s.Hist[i][p]
				pending = pending || x.Kind == jReleased && x.Arg == c && p >= s.M.Off[i]
			}
			if pending {
				continue
			}
			if !r.room(&s, i, 1) {
				e.cut()
				continue
			}
			n := s
			r.write(&n, i, entry2{Kind: jReleased, Arg: c})
			out(&n, true, "release.lua of claim %b", 0, int(c))
		}
	}
	// a proof that nothing is left
	if s.Proofs > 0 && s.PPh == 0 {
		n := s
		n.Proofs--
		n.PPh = 1
		out(&n, false, "a proof of sold_out begins", 0, 0)
	}
	if s.PPh > 0 {
		at := []int{0, 1, 0, 1}[s.PPh-1]
		n := s
		end := func() {
			n.PPh, n.PZero, n.P1, n.P2 = 0, false, [2]look2{}, [2]look2{}
		}
		if !s.live(at) {
			end()
			out(&n, true, "the proof fails: lot %a is away", at+1, 0)
		} else {
			l := &s.R[at]
			v := look2{l.Epoch, l.Mask, l.Rel, l.In, l.Out}
			if s.PPh < 3 {
				n.P1[at] = v
			} else {
				n.P2[at] = v
			}
			n.PPh++
			if n.PPh == 5 || n.PPh == 3 && !r.TwoReads {
				if !r.TwoReads {
					n.P2 = n.P1
				}
				in, outs := n.P2[0].In|n.P2[1].In, n.P2[0].Out|n.P2[1].Out
				free := 0
				for i := range 2 {
					x := lot2{Mask: n.P2[i].Mask, Rel: n.P2[i].Rel, In: n.P2[i].In, Out: n.P2[i].Out}
					free += max(0, r.free(&s, i, &x))
				}
				if n.P1 == n.P2 && (!r.OutIn || count(in) == count(outs)) && free <= 0 {
					if !s.PZero && r.stock(&s) > 0 {
						e.bad("sold_out was said while a unit was free all the time")
					}
				}
				end()
			}
			out(&n, true, "the proof reads lot %a", at+1, 0)
		}
	}
	if !s.Dumped && s.Restore > 0 {
		n := s
		n.Dumped, n.D = true, s.M
		out(&n, false, "MySQL is dumped", 0, 0)
	}
	if s.Dumped && s.Restore > 0 && s.D != s.M {
		n := s
		n.Restore--
		n.M, n.D, n.Dumped = s.D, books2{}, false
		if s.Loss < r.Loss {
			n.Both = 1
		}
		out(&n, false, "MySQL is restored", 0, 0)
	}
}

func (r *rulesTwo) canon(s *two) {
	if s.Restore == 0 {
		s.D, s.Dumped = books2{}, false
	}
	var uids [256]uint8
	n := uint8(0)
	name := func(u *uint8) {
		if *u != 0 {
			if uids[*u] == 0 {
				n++
				uids[*u] = n
			}
			*u = uids[*u]
		}
	}
	for i := range 2 {
		for p := range s.NH[i] {
			name(&s.Hist[i][p].UID)
		}
	}
	for i := range 2 {
		name(&s.M.UID[i])
		name(&s.D.UID[i])
	}
	s.NU = n
	if s.PPh == 0 {
		s.PZero = false
	}
}

func (r *rulesTwo) quiet(s *two) (bool, string) {
	if s.M.Outb != 0 || s.M.Deb&^s.M.Cred != 0 || s.PPh != 0 {
		return false, ""
	}
	for i := range 2 {
		rd := s.M.Redo[i]
		if s.M.Rec[i] || !s.here(i) || !s.live(i) || s.R[i].Epoch <= rd {
			return false, ""
		}
		for p := s.M.Off[i]; p < s.NH[i]; p++ {
			if s.Hist[i][p].Kind != jFence {
				return false, ""
			}
		}
		for m := range s.NM { // a debit that Redis has and MySQL will learn of
			if s.R[i].Out>>m&1 == 1 && s.M.Deb>>m&1 == 0 {
				return true, "a debit that MySQL never learns of"
			}
		}
	}
	for i := range 2 {
		l := &s.R[i]
		switch {
		case l.Mask != s.M.Rows&s.of(i) || l.Rel != s.M.Rel&s.of(i):
			return true, fmt.Sprintf("I6: claims of lot %d differ", i+1)
		case l.In != s.moves(s.M.Cred, i, true) || l.Out != s.moves(s.M.Deb, i, false):
			return true, fmt.Sprintf("shards: moves of lot %d differ", i+1)
		}
	}
	if count(s.R[0].In)+count(s.R[1].In) != count(s.R[0].Out)+count(s.R[1].Out) {
		return true, "shards: the totals of the lots are not the campaign's"
	}
	return true, ""
}

func (r *rulesTwo) show(s *two) string {
	var b strings.Builder
	for i := range 2 {
		fmt.Fprintf(&b, "stream %d:", i+1)
		for p := range s.NH[i] {
			h := &s.Hist[i][p]
			fmt.Fprintf(&b, " %s(%d)", kinds2[h.Kind], h.Arg)
		}
		l := &s.R[i]
		fmt.Fprintf(&b, " · lot: live %v epoch %d claims %b released %b in %b out %b, MySQL: offset %d epoch %d redo %d · ", s.live(i), l.Epoch, l.Mask, l.Rel, l.In, l.Out,
			s.M.Off[i], s.M.Epoch[i], s.M.Redo[i])
	}
	fmt.Fprintf(&b, "MySQL: rows %b released %b debited %b credited %b", s.M.Rows, s.M.Rel, s.M.Deb, s.M.Cred)
	return b.String()
}

// ---- what is run
// ----------------------------------------------------------------------------------------------------------------

type scenario struct {
	name string
	deep bool
	run  func(limit int, until time.Duration, without string) result
}

func without(v reflect.Value, rules string) {
	for _, name := range strings.Fields(rules) {
		v.FieldByName(name).SetBool(false)
	}
}

func one1(name string, set func(r *rulesOne)) scenario {
	return scenario{name, strings.HasPrefix(name, "D"), func(limit int, until time.Duration, rules string) result {
		r := rightOne()
		set(&r)
		without(reflect.ValueOf(&r).Elem(), rules)
		return search[one](&r, limit, until)
	}}
}

func two1(name string, set func(r *rulesTwo)) scenario {
	return scenario{name, strings.HasPrefix(name, "D"), func(limit int, until time.Duration, rules string) result {
		r := rightTwo()
		set(&r)
		without(reflect.ValueOf(&r).Elem(), rules)
		return search[two](&r, limit, until)
	}}
}

// Defaults: 2 API processes, 1 reader, 1 loader, total 2, 2 claims, 1
// rollback of Redis to any write, 1 restore of MySQL to any commit. Stream
// ids repeat after a rollback, as if Redis' clock were set back.
var scenarios = []scenario{
	one1("A1 claims: 3, a rollback, a restore", func(r *rulesOne) { r.Claims = 3 }),
	one1("A2 units 1 and 2, total 3, a process dies, a rollback", func(r *rulesOne) { r.Total, r.Units2, r.Death, r.Restore = 3, true, 1, 0 }),
	one1("A3 3 claims, two rollbacks", func(r *rulesOne) { r.Claims, r.Loss, r.Restore = 3, 2, 0 }),
	one1("A4 two readers with stale leases, 1 claim", func(r *rulesOne) { r.Readers, r.Claims = 2, 1 }),
	one1("A5 two loaders, two evictions, total 1", func(r *rulesOne) { r.Loaders, r.Evict, r.Restore, r.Loss, r.Total = 2, 2, 0, 0, 1 }),
	one1("A6 the lot's keys deleted, an eviction, a rollback", func(r *rulesOne) { r.Evict, r.Del, r.Restore = 1, 1, 0 }),
	one1("A7 MySQL has applied nothing yet, an eviction, a rollback", func(r *rulesOne) { r.Begin0, r.Evict, r.Restore = true, 1, 0 }),
	one1("A8 ids never twice", func(r *rulesOne) { r.Fresh = true }),
	one1("A9 two readers, two rollbacks, 1 death in a recovery, 1 claim", func(r *rulesOne) { r.Readers, r.Loss, r.Restore, r.Claims, r.Fail = 2, 2, 0, 1, 1 }),
	one1("A10 units 1 and 2, 3 claims, a rollback", func(r *rulesOne) { r.Claims, r.Total, r.Units2, r.Restore = 3, 3, true, 0 }),
	one1("A11 3 claims, a process dies, a rollback", func(r *rulesOne) { r.Claims, r.Death, r.Restore = 3, 1, 0 }),
	one1("A12 nothing applied yet, two rollbacks", func(r *rulesOne) { r.Begin0, r.Loss, r.Restore = true, 2, 0 }),
	one1("A13 a death in a load or recovery", func(r *rulesOne) { r.Fail = 1 }),
	one1("A14 a process sleeps while all write what they saw", func(r *rulesOne) { r.Late, r.Restore = 1, 0 }),
	one1("B1 a release", func(r *rulesOne) { r.Release = 1 }),
	one1("B2 a release, a relay that sleeps, an eviction, total 1", func(r *rulesOne) { r.Release, r.Old, r.Evict, r.Claims, r.Total = 1, 1, 1, 1, 1 }),
	one1("B3 two changes of the definition, 1 claim", func(r *rulesOne) { r.Define, r.Claims = 2, 1 }),
	one1("B4 an operator gives up, total 1", func(r *rulesOne) { r.GiveUp, r.Total = 1, 1 }),
	one1("B5 two operators give up, 3 claims, two rollbacks", func(r *rulesOne) { r.GiveUp, r.Claims, r.Restore, r.Loss = 2, 3, 0, 2 }),
	one1("M1 mode mysql, 3 claims", func(r *rulesOne) { r.Mysql, r.Claims = true, 3 }),
	one1("M2 mode mysql, two rollbacks", func(r *rulesOne) { r.Mysql, r.Claims, r.Loss, r.Restore = true, 3, 2, 0 }),
	one1("M3 mode mysql, units 1 and 2, total 3", func(r *rulesOne) { r.Mysql, r.Units2, r.Total = true, true, 3 }),
	one1("G1 trimming, a restore, gap", func(r *rulesOne) { r.Trim, r.Loss = 1, 0 }),
	one1("G2 trimming, a restore, a rollback, gap", func(r *rulesOne) { r.Trim = 1 }),
	two1("S1 3 claims, a move, a rollback, a restore", func(r *rulesTwo) {}),
	two1("S2 2 claims, a move, a release, a restore", func(r *rulesTwo) { r.Release, r.Claims, r.Loss = 1, 2, 0 }),
	two1("S3 2 claims, a mover that sleeps, a rollback, a restore", func(r *rulesTwo) { r.Sleep, r.Claims = 1, 2 }),
	two1("S4 2 claims, two moves, a rollback", func(r *rulesTwo) { r.Moves, r.Restore, r.Claims = 2, 0, 2 }),
	two1("S5 a proof of sold_out, 3 claims, two moves, a release", func(r *rulesTwo) { r.Proofs, r.Moves, r.Loss, r.Restore, r.Release = 1, 2, 0, 0, 1 }),
	two1("S6 a proof, 2 claims, a move, a rollback, a release", func(r *rulesTwo) { r.Proofs, r.Restore, r.Claims, r.Release = 1, 0, 2, 1 }),
	two1("S7 a proof, 2 claims, a move, a restore, a release", func(r *rulesTwo) { r.Proofs, r.Loss, r.Claims, r.Release = 1, 0, 2, 1 }),
	two1("S8 2 claims, two moves, a rollback, a restore", func(r *rulesTwo) { r.Moves, r.Claims = 2, 2 }),
	two1("S9 all units on one lot", func(r *rulesTwo) { r.Deal = [2]uint8{2, 0} }),

	one1("D1 3 claims, two rollbacks, a restore", func(r *rulesOne) { r.Claims, r.Loss = 3, 2 }),
	one1("D2 two readers, 2 claims, a death", func(r *rulesOne) { r.Readers, r.Fail = 2, 1 }),
	one1("D3 two loaders, an eviction, a rollback", func(r *rulesOne) { r.Loaders, r.Evict, r.Restore = 2, 1, 0 }),
	one1("D4 mode mysql, 3 claims, two rollbacks, a restore", func(r *rulesOne) { r.Mysql, r.Claims, r.Loss = true, 3, 2 }),
	one1("D5 units 1 and 2, total 3, a process dies, a rollback, a restore", func(r *rulesOne) { r.Total, r.Units2, r.Death = 3, true, 1 }),
	one1("D6 2 claims, a release, an eviction, a rollback, a restore", func(r *rulesOne) { r.Release, r.Evict = 1, 1 }),
	one1("D7 nothing applied yet, an eviction, a rollback, a restore", func(r *rulesOne) { r.Begin0, r.Evict = true, 1 }),
	one1("D8 keys deleted, an eviction, a rollback, a restore", func(r *rulesOne) { r.Evict, r.Del = 1, 1 }),
	one1("D9 two changes of the definition, 2 claims", func(r *rulesOne) { r.Define = 2 }),
	one1("D10 ids never twice, 3 claims, two rollbacks, a restore", func(r *rulesOne) { r.Fresh, r.Claims, r.Loss = true, 3, 2 }),
	two1("D11 2 claims, a move, two rollbacks, a restore", func(r *rulesTwo) { r.Loss, r.Claims = 2, 2 }),
	two1("D12 3 claims, two moves, a release, a rollback, a restore", func(r *rulesTwo) { r.Moves, r.Release = 2, 1 }),
}

// mutant leaves out one rule or several. If wants is empty,
// nothing may break: the other rules imply it.
type mutant struct{ in, rules, why, wants string }

// holes are errors or gaps of the first design, and their effect.
var holes = []mutant{
	{"M2", "GenEntry GenMono GenMax", "5a: the generation is a SET without an entry: a rollback undoes it alone", "I1"},
	{"A9", "GenEntry GenMono GenMax", "5a: the same in mode fast", "I2"},
	{"A9", "GenNew GenMono GenMax", "5a: a SET by somebody who slept puts an older generation back", "I2"},
	{"A5", "Token", "7: the same although higher epochs are refused: the eviction took them away", "I"},
	{"A3", "CollectLoad", "6: the caller's position alone counts what is lost, others saw more", "I1"},
	{"A10", "SeenUnits", "6: positions are compared by seq and within an epoch, not by units sold", "I1"},
	{"A1", "SnapCheck", "7: MySQL is restored between the number and the rows", "I1"},
	{"A1", "Redo", "7: MySQL is restored behind the rows that a load was made of", "I6"},
	{"B1", "LoadPending Redo", "11: a load counts a release that MySQL then forgets", "I6"},
	{"B1", "LoadPending Repeat", "11: a release that a load has counted is not confirmed", "stuck"},
	{"M2", "ByRow", "mysql: the key of the offset is behind the claim's id, and the claim is gone", "I2"},
	{"M2", "SeenAnswered", "mysql: claims that were never answered count as lost and are withheld", "I5"},
	{"B5", "GivenCAS", "8: two operators give up the same units", "I1"},
	{"G1", "TrimmedInRedis", "9: `trimmed` is in MySQL, which is restored", "older than the stream"},
	{"G1", "GapReloads", "9: accept-gap leaves claims in Redis that no row has", "I6"},
	{"S1", "DropDebit", "5c: a debit of units that rows say are sold is applied, and sold by the taker", "I1"},
	{"S1", "CreditTip", "shards: credit when the debit is applied, though its stream goes on to void it", "I1"},
	{"S1", "WaitAll", "7: a lot is loaded before the streams of its peers, which prove its debits, are applied", "I1"},
	{"S1", "ProvesRedo", "shards: a credit lowers the giver in MySQL alone", "moves of lot"},
	{"S1", "EpochFromSQL", "shards: the taker's epoch is asked of Redis, MySQL lacks its load", "twice"},
	{"S1", "Redo", "7: as above, of moves", "I6"},
}

var mutants = []mutant{
	{"A1", "EventID", "the offset is compared by id alone", "I6"},
	{"A1", "CAS", "no compare-and-set of the offset", "I6"},
	{"A1", "Seen", "callers' positions are not compared", "I1"},
	{"A6", "WaitTip", "a load does not wait for the tip", "I2"},
	{"A9", "GenCheck", "load.lua does not check the generation", "I"},
	{"A3", "CollectRecover", "5b is left out", "I1"},
	{"A3", "ReadAll", "5c reads only behind the offset", "I2"},
	{"B1", "RelIdem", "release.lua is not idempotent", "twice"},
	{"B1", "Confirm", "an outbox row is deleted by the reply", "I6"},
	{"B3", "Renumber", "a PATCH does not take the next version", "stuck"},
	{"M2", "Drop", "mode mysql: 5c drops nothing", "I1"},
	{"A1", "EntryCounts", "entries don't carry cumulative counts", "I6"},
	{"S1", "WaitDebit CreditTip", "credit before the debit is applied", "I1"},
	{"S1", "Idem", "credit.lua does not know move ids", "twice"},
	{"S3", "TakerEpoch", "credit.lua does not check the epoch", "twice"},
	{"S1", "Proves", "a credit does not prove its debit", "totals"},
	{"S5", "TwoReads", "sold_out after one read", "sold_out"},
	{"S5", "OutIn", "sold_out without comparing out and in", "sold_out"},
	{"S1", "Finish", "nobody finishes moves", "stuck"},
	{"S1", "WaitTip", "a lot is loaded before its stream is applied", "I1"},
}

const lean = "EpochCheck BumpCAS EvictApplied GenMono GenMax Repeat FenceTells EpochMax DedupInTx WaitHere"

var implied = []mutant{
	{"A1", lean, "without: " + lean, ""},
	{"A12", lean, "the same", ""},
	{"A6", lean, "the same", ""},
	{"B1", lean, "the same", ""},
	{"B3", lean, "the same", ""},
	{"G1", lean, "the same", ""},
	{"S8", "LoadPending", "two lots, loads that count decided releases", ""},
}
