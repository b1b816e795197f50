package recovery

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"dibs/lua"
	"dibs/models"
)

// total is the units of each lot, and lotCount how many lots the partition has.
const (
	total    = 12
	lotCount = 2
)

// claimOf is a claim: its lot and its place there.
type claimOf struct{ lot, seq int }

// mysqlLot is a row of a lot with all that belongs to it. Maps are replaced, never changed, so that a copy of the struct is a snapshot.
type mysqlLot struct {
	residency       models.Residency
	isRolledBack    bool
	isEffect        bool // why it is lost names the effect of a cause that may be found yet
	epoch, attempts int64
	generation      int
	loader          int // the actor
	loaderUntil     int // a turn
	fenceTip        int // one more than it; 0 is none
	synced, seen    int
	reported        int          // what seen should not be below until the lot is open again; no column
	rows, parked    map[int]int  // the claim's id by seq; the seq by the claim's id
	gaveUp          map[int]bool // seqs
}

type mysqlServer struct {
	lots       [lotCount]mysqlLot
	generation int // of the stream; 0 is no row
	tip, added int
	recordedAt int
	unbooked   [lotCount]place
	flushes    map[int]bool
}

type redisLot struct {
	held    Held
	status  models.Status
	epoch   int64
	seq     int
	records map[int]int // the claim's id by seq
	copied  *Copy
	tomb    *Tombstone
}

// hasState reports whether there are counters of the lot.
func (r *redisLot) hasState() bool { return r.held != Absent && r.status != "" }

type entry struct {
	at, lot, seq, claim int
	epoch               int64
}

// place is a seq of a load.
type place struct {
	epoch int64
	seq   int
}

type redisServer struct {
	lots       [lotCount]redisLot
	generation int
	entries    []entry
	tip, added int
	acked      int // group syncer
	flushes    []int
	recorded   int
}

func (s *mysqlServer) text(i int) string {
	m := &s.lots[i]
	return fmt.Sprintf("mysql: %s epoch %d of %d, loader %d, fence tip %d, synced %d, seen %d, rows %v, parked %v, given up %v; stream %d (%d), tip %d, unbooked %v",
		m.residency, m.epoch, m.attempts, m.loader, m.fenceTip-1, m.synced, m.seen, m.rows, m.parked, m.gaveUp, s.generation, m.generation, s.tip, s.unbooked)
}

func (s *redisServer) text(r *redisLot) string {
	return fmt.Sprintf("redis: held %d %s epoch %d seq %d, records %v, copy %+v, tombstone %+v; stream %d, tip %d, acked %d",
		r.held, r.status, r.epoch, r.seq, r.records, r.copied, r.tomb, s.generation, s.tip, s.acked)
}

// world is a partition with its servers, processes and operators.
type world struct {
	mysql       mysqlServer
	redis       redisServer
	mysqlPast   []mysqlServer
	redisPast   []redisServer
	seen        [2][lotCount]lua.Position // by API process
	delivered   []entry                   // in the consumer's memory
	answered    map[int]claimOf
	claims      int // made so far
	turns       int
	faults      int  // so far
	isUnnoticed bool // no syncer looked since MySQL was restored
	isBrief     bool // MySQL is restored by too short a time for a lot to have been idle in it
	generation  int  // the last that was made
	flushID     int
	actors      []*actor
	actorID     int
	flaw        flaw
	wrong       error
	hits        map[string]int
	rng         *rand.Rand
	trace       []string
}

func (w *world) notef(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%d ", w.turns)+fmt.Sprintf(format, args...))
}

func newWorld(f flaw) *world {
	w := &world{answered: make(map[int]claimOf), flaw: f, turns: 10, hits: make(map[string]int)}
	w.mysql.flushes = map[int]bool{}
	for i := range w.mysql.lots {
		w.mysql.lots[i].residency = models.ResidencyNone
	}
	return w
}

// with returns a copy of a map with one value more.
func with[K comparable, V any](m map[K]V, k K, v V) map[K]V {
	c := maps.Clone(m)
	if c == nil {
		c = make(map[K]V)
	}
	c[k] = v
	return c
}

func without[K comparable, V any](m map[K]V, k K) map[K]V {
	c := maps.Clone(m)
	delete(c, k)
	return c
}

func (w *world) saveMySQL() {
	w.notef("mysql saved")
	w.mysqlPast = append(w.mysqlPast, w.mysql)
}

func (w *world) saveRedis() {
	w.notef("redis saved")
	w.redisPast = append(w.redisPast, w.redis)
}

// claim is a claim by an API process. It returns what the process saw, if it then asks for a recovery.
func (w *world) claim(api, i int, isAnswerLost bool) (reported lua.Position, asks bool) {
	r, seen := &w.redis.lots[i], &w.seen[api][i]
	if r.held != Present || r.status != models.StatusOpen {
		return *seen, true
	}
	if r.epoch < seen.Epoch || r.epoch == seen.Epoch && int64(r.seq) < seen.Seq {
		r.status = models.StatusFenced
		return *seen, true
	}
	if len(r.records) >= total {
		return lua.Position{}, false
	}
	w.claims++
	w.notef("claim %d: lot %d seq %d epoch %d, lost answer %t", w.claims, i, r.seq+1, r.epoch, isAnswerLost)
	r.seq++
	r.records = with(r.records, r.seq, w.claims)
	w.add(entry{lot: i, seq: r.seq, claim: w.claims, epoch: r.epoch})
	if !isAnswerLost {
		w.answered[w.claims] = claimOf{i, r.seq}
		*seen = lua.Position{Epoch: r.epoch, Seq: int64(r.seq)}
	}
	return lua.Position{}, false
}

func (w *world) add(e entry) {
	e.at = max(w.turns, w.redis.tip+1)
	w.redis.entries = append(slices.Clone(w.redis.entries), e)
	w.redis.tip = e.at
	w.redis.added++
}

// deliver gives the consumer the entries that it does not have.
func (w *world) deliver() {
	last := w.redis.acked
	if len(w.delivered) > 0 {
		last = w.delivered[len(w.delivered)-1].at
	}
	for _, e := range w.redis.entries {
		if e.at > last {
			w.delivered = append(w.delivered, e)
			return
		}
	}
}

// flush writes what the consumer has, unless MySQL lacks a flush that Redis remembers. It dies where it is told to: 1 before Redis hears
// of the flush, 2 before it acknowledges.
func (w *world) flush(dieAt int) {
	batch := w.delivered
	w.delivered = nil
	if len(batch) > 0 {
		w.notef("flush %v, dies at %d", batch, dieAt)
	}
	for _, id := range w.redis.flushes {
		if !w.mysql.flushes[id] {
			return
		}
	}
	if len(batch) == 0 {
		return
	}
	isFlush := false // of rows that were not there
	for _, e := range batch {
		isFlush = w.write(&w.mysql.lots[e.lot], e.seq, e.claim) || isFlush
	}
	if isFlush {
		w.flushID++
		w.mysql.flushes = with(w.mysql.flushes, w.flushID, true)
	}
	if dieAt == 1 {
		return
	}
	if isFlush {
		w.redis.flushes = append(slices.Clone(w.redis.flushes), w.flushID)
	}
	if dieAt == 2 {
		return
	}
	w.redis.acked = max(w.redis.acked, min(batch[len(batch)-1].at, w.redis.tip))
}

// write writes the row of a claim, or parks the claim when another has its place.
func (w *world) write(m *mysqlLot, seq, claim int) (isWritten bool) {
	for _, id := range m.rows {
		if id == claim {
			return false
		}
	}
	if _, isParked := m.parked[claim]; isParked {
		return false
	}
	if _, isTaken := m.rows[seq]; isTaken {
		m.parked = with(m.parked, claim, seq)
		return false
	}
	m.rows = with(m.rows, seq, claim)
	if m.gaveUp[seq] { // it came after all
		m.gaveUp = without(m.gaveUp, seq)
	} else {
		m.synced++
	}
	return true
}

// restoreMySQL is back as it was.
func (w *world) restoreMySQL(at int) {
	w.notef("mysql restored to %d of %d", at, len(w.mysqlPast))
	w.faults++
	w.isUnnoticed = true
	w.mysql = w.mysqlPast[at]
	w.mysqlPast = w.mysqlPast[:at+1]
	w.delivered = nil
}

func (w *world) restoreRedis(at int) {
	w.notef("redis restored to %d of %d", at, len(w.redisPast))
	w.faults++
	w.redis = w.redisPast[at]
	w.redisPast = w.redisPast[:at+1]
	w.delivered = nil
}

func (w *world) flushAll() {
	w.notef("flush all")
	w.faults++
	w.redis = redisServer{}
	w.delivered = nil
}

// deleteKey is a key of a lot that vanishes: its state, its users, its tombstone. No key vanishes in the second in which MySQL was
// restored: of a lot that MySQL forgot and Redis lost, only the stream would tell.
func (w *world) deleteKey(i, which int) {
	w.notef("key %d of lot %d deleted", which, i)
	w.faults++
	r := &w.redis.lots[i]
	switch {
	case w.isUnnoticed:
	case which == 0 && r.held != Absent && len(r.records) > 0: // users without a state
		*r = redisLot{held: Damaged, records: r.records, tomb: r.tomb}
	case which == 0:
		*r = redisLot{tomb: r.tomb}
	case which == 1 && r.held == Present && len(r.records) > 0:
		r.held = Damaged
	case which == 2:
		r.tomb = nil
	}
}
