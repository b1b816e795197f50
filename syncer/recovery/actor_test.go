package recovery

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"dibs/lua"
	"dibs/models"
)

// actor is a run of the engine on one lot. It stops between any two calls to a server, and goes on when it is its turn.
type actor struct {
	w        *world
	id, lot  int
	policy   Policy
	reported lua.Position
	evicts   bool
	differs  bool // the operator finds users' records that differ
	watches  bool
	next     func() (string, bool)
	stop     func()

	yield   func(string) bool
	rounds  int // in which MySQL was behind
	before  Before
	tried   Evidence
	lastTip int // of the observation before
	steps   int
	last    Step
	isOver  bool
}

type stopped struct{}

// start begins a run.
func (w *world) start(a actor) *actor {
	w.actorID++
	a.w, a.id = w, w.actorID
	run := &a
	run.next, run.stop = iter.Pull(func(yield func(string) bool) {
		defer func() {
			if r := recover(); r != nil && r != (stopped{}) {
				panic(r)
			}
		}()
		run.yield = yield
		run.run()
	})
	w.actors = append(w.actors, run)
	return run
}

// at lets others go on. A run that is killed ends here.
func (a *actor) at(where string) {
	if !a.yield(where) {
		panic(stopped{})
	}
}

func (a *actor) goOn() { _, more := a.next(); a.isOver = !more }

func (a *actor) kill() {
	a.w.notef("actor %d is killed", a.id)
	a.stop()
	a.isOver = true
}

// observed is what a run knows of the servers at its last observation.
type observed struct {
	faults    int   // there had been before
	flushes   []int // that Redis remembered before MySQL was read
	recorded  int
	mysql     mysqlServer
	redis     redisLot
	stream    redisServer
	hasGap    bool
	partition Partition
	lot       Lot
}

func (a *actor) run() {
	w := a.w
	for {
		o := a.observe()
		step := PlanPartition(&o.partition)
		if step.Action == None {
			step = PlanLot(&o.lot, a.policy)
		}
		a.before = Before{Epoch: o.lot.Redis.At.Epoch, IsTaking: o.lot.IsTaking()}
		a.last = step
		w.hits[step.Row]++
		w.notef("actor %d %s: %s %s lot %d; %s; %s", a.id, a.policy, step.Row, step.Action, a.lot,
			o.mysql.text(a.lot), o.stream.text(&o.redis))
		if step.Row == "" {
			a.fail(o, step, "no row")
		}
		if step.Action == WaitReplica && w.faults == 0 && o.partition.Known {
			a.fail(o, step, "waits for a replica where none lags")
		}
		if w.flaw == flawLostFirst && step.Action == Fence && o.lot.MySQL.Residency != models.ResidencyLost {
			step.Action = MarkLost
		}
		switch step.Action {
		case None, Refuse:
			return
		case WaitConsumers, WaitLoader, WaitReplica, ObserveAgain:
			a.at("wait")
		default:
			a.do(o, step)
		}
		a.lastTip = o.stream.tip
		a.steps++
	}
}

func (a *actor) fail(o *observed, step Step, what string) {
	if a.w.wrong == nil {
		a.w.wrong = fmt.Errorf("%w: %s: %s by %s: %+v", errTable, what, step.Row+" "+string(step.Action), a.policy, o.lot) //nolint:err113 // what was found
	}
}

func streamText(generation int) string {
	if generation == 0 {
		return ""
	}
	return strconv.Itoa(generation)
}

// observe reads what Redis remembers, then MySQL, then Redis.
func (a *actor) observe() *observed {
	w, o := a.w, &observed{faults: a.w.faults}
	remember := func() { o.flushes, o.recorded = w.redis.flushes, w.redis.recorded }
	if w.flaw != flawWitnessLate {
		remember()
	}
	a.at("remembered")
	o.mysql = w.mysql
	a.at("mysql")
	if w.flaw == flawWitnessLate {
		remember()
	}
	o.redis = w.redis.lots[a.lot]
	a.at("lot")
	gap := func() {
		known, entries := o.mysql.tip, w.redis.entries
		i := slices.IndexFunc(entries, func(e entry) bool { return e.at >= known })
		o.hasGap = known > 0 && (i < 0 || entries[i].at != known)
	}
	gap()
	a.at("gap")
	o.stream = w.redis
	if first := o.stream.entries; len(first) == 0 || first[0].at >= o.mysql.tip {
		o.hasGap = false
	}
	a.setPartition(o)
	a.setLot(o)
	return o
}

func (a *actor) setPartition(o *observed) {
	m, p := &o.mysql, &o.partition
	*p = Partition{
		Known: m.generation > 0, Remembered: lua.EntryID{Ms: uint64(o.recorded)}, Watching: a.watches,
		Recorded: lua.StreamPosition{Generation: streamText(m.generation), Tip: lua.EntryID{Ms: uint64(m.tip)}, Added: int64(m.added)},
		Stream: lua.StreamPosition{
			Generation: streamText(o.stream.generation), Tip: lua.EntryID{Ms: uint64(o.stream.tip)}, Added: int64(o.stream.added),
		},
		RecordedAge: time.Duration(a.w.turns-m.recordedAt) * time.Second / 10, UnbookedMoved: a.unbooked(o) != m.unbooked,
	}
	if o.hasGap {
		p.Stream.Gap = p.Recorded.Tip
	}
	for _, id := range o.flushes {
		if !m.flushes[id] {
			p.Lacking++
		}
	}
	if p.IsMySQLBehind() {
		a.rounds++
	} else {
		a.rounds = 0
	}
	p.Rounds = a.rounds
}

// unbooked is the highest seq of each lot that the group has not acknowledged.
func (a *actor) unbooked(o *observed) (seqs [lotCount]place) {
	for _, e := range o.stream.entries {
		if last := &seqs[e.lot]; e.at > o.stream.acked && (e.epoch > last.epoch || e.epoch == last.epoch && e.seq > last.seq) {
			*last = place{e.epoch, e.seq}
		}
	}
	return seqs
}

// counting are the parked claims whose places no one else has.
func counting(m *mysqlLot) map[int]int {
	counting := make(map[int]int)
	for _, id := range slices.Sorted(maps.Keys(m.parked)) {
		seq := m.parked[id]
		if _, isTaken := m.rows[seq]; !isTaken {
			counting[seq] = id
		}
	}
	return counting
}

func (a *actor) setLot(o *observed) {
	m, r, l := &o.mysql.lots[a.lot], &o.redis, &o.lot
	parked := counting(m)
	*l = Lot{
		Found: true, Generation: streamText(o.mysql.generation), Reported: a.reported, Before: a.before,
		StreamTip:    lua.EntryID{Ms: uint64(o.stream.tip)},
		Acknowledged: o.stream.acked >= m.fenceTip-1, Settled: o.stream.acked >= o.stream.tip,
		IsToBeEvicted: a.evicts && r.seq == m.synced,
		MySQL: MySQL{
			Residency: m.residency, IsRolledBack: m.isRolledBack, Epoch: m.epoch, LoadAttempts: m.attempts, Generation: streamText(m.generation),
			Version: 1, AppliedVersion: 1, SyncedSeq: int64(m.synced), SeenSeq: int64(m.seen), Claimed: int64(len(m.rows)),
			LostClaims: int64(len(m.gaveUp)), ParkedClaims: int64(len(parked)),
		},
		Redis: Redis{Held: r.held, Status: r.status, Copy: r.copied, Tombstone: r.tomb},
	}
	for seq := range parked {
		l.MySQL.ParkedSeq = max(l.MySQL.ParkedSeq, int64(seq))
	}
	if m.fenceTip > 0 {
		l.MySQL.FenceTip = &lua.EntryID{Ms: uint64(m.fenceTip - 1)}
	}
	if r.held != Absent {
		l.Redis.At = lua.Position{Epoch: r.epoch, Seq: int64(r.seq), Version: 1}
	}
	if r.status == models.StatusLoading {
		l.Redis.At.Version = 0
	}
	if m.loader != 0 && m.loader != a.id && m.loaderUntil > a.w.turns {
		l.IsLoading = true
	}
	e := &l.Evidence
	*e = a.tried
	e.RedisDiffers = a.differs
	e.Displaced = len(m.parked) - len(parked)
	if e.Rows != nil { // counted with this observation
		e.Rows = &Rows{Claims: int64(len(m.rows)), SyncedSeq: int64(m.synced), Differ: len(m.rows)+len(m.gaveUp) != m.synced}
		for seq := range m.rows {
			e.Rows.LastSeq = max(e.Rows.LastSeq, int64(seq))
		}
	}
	e.LacksRecords = e.AreRecordsRead && len(r.records)+len(m.gaveUp) != r.seq
}
