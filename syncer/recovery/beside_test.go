package recovery

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"dibs/lua"
	"dibs/models"
)

// Servers do what the model does: real ones beside it. Lots are numbered from 0; each has Total units.
type Servers interface {
	// Claim claims a unit for a process that saw so much, and returns what it sees now. asks says that the process asks for a recovery.
	Claim(lot int, seen lua.Position) (now lua.Position, asks bool)
	// Book writes all claims that are in the stream, and acknowledges them.
	Book()
	// Save keeps what both servers hold, to be restored by its number.
	Save()
	RestoreMySQL(at int)
	RestoreRedis(at int)
	FlushAll()
	DeleteKey(lot, which int)
	// Watch is a round of Watch.
	Watch()
	// Recover is a run of the engine by what a process saw. It fails where the script is sent that failing names; "" is none.
	Recover(lot int, seen lua.Position, failing string)
	Evict(lot int)
	Repair(lot int, policy Policy)
	// Show is what both servers hold of a lot.
	Show(lot int) Shown
}

// Total is the units of each lot of a model, and LotCount how many it has.
const Total, LotCount = total, lotCount

// Shown is what both servers hold of a lot, as far as the model has it.
type Shown struct {
	Residency                                   models.Residency
	IsRolledBack, HasFenceTip                   bool
	Epoch, Attempts, Synced, Seen, Lost, Parked int
	Seqs                                        string // of the rows
	Held                                        Held
	Status                                      models.Status
	RedisEpoch, RedisSeq, Records               int
	Tombstone                                   string
}

func (w *world) show(i int) Shown {
	m, r := &w.mysql.lots[i], &w.redis.lots[i]
	s := Shown{
		Residency: m.residency, IsRolledBack: m.isRolledBack, HasFenceTip: m.fenceTip > 0, Epoch: int(m.epoch), Attempts: int(m.attempts),
		Synced: m.synced, Seen: m.seen, Lost: len(m.gaveUp), Parked: len(m.parked), Seqs: fmt.Sprint(slices.Sorted(maps.Keys(m.rows))),
		Held: r.held, Status: r.status,
	}
	if r.held == Present {
		s.RedisEpoch, s.RedisSeq, s.Records = int(r.epoch), r.seq, len(r.records)
	}
	if r.tomb != nil {
		s.Tombstone = fmt.Sprintf("%d:%d:0", r.tomb.Epoch, r.tomb.Seq)
	}
	return s
}

// PlayBeside plays a schedule on the model and on servers: one turn after the other, each of them to its end unless a server fails in it.
// After each turn both must hold the same. steps are the rows of the tables that the model took.
func PlayBeside(seed uint64, s Servers) (steps map[string]int, err error) {
	w := newWorld(flawless)
	w.rng = rand.New(rand.NewPCG(seed, 1))
	w.isBrief = true
	b := &beside{w: w, s: s}
	b.save()
	turns := 20 + w.draw(40)
	for n := 0; n < turns && err == nil; n++ {
		w.turns++
		b.turn(w.draw(lotCount-1), n > turns/4)
		err = b.differs()
	}
	for _, policy := range policies { // until every lot is open
		for i := 0; i < lotCount && err == nil; i++ {
			b.book()
			if policy == Auto {
				b.recover(i, lua.Position{}, "")
			} else {
				w.notef("%s of lot %d", policy, i)
				b.run(actor{lot: i, policy: policy}, nil, "")
				s.Repair(i, policy)
			}
			b.book()
			err = b.differs()
		}
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, strings.Join(w.trace, "\n"))
	}
	return w.hits, err
}

// beside is a model and the servers beside it.
type beside struct {
	w *world
	s Servers
}

func (b *beside) differs() error {
	if b.w.wrong != nil {
		return b.w.wrong
	}
	for i := range lotCount {
		if model, servers := b.w.show(i), b.s.Show(i); model != servers {
			return fmt.Errorf("%w: lot %d\nis  %+v\nnot %+v", errTable, i, servers, model)
		}
	}
	return nil
}

func (b *beside) turn(lot int, mayFail bool) {
	w := b.w
	switch what := w.draw(20); {
	case what < 9:
		b.claim(w.draw(1), lot)
	case what < 12:
		b.book()
	case what == 12:
		b.save()
	case what < 15:
		b.watch()
	case what == 15:
		b.evict(lot)
	case what == 16:
		b.recover(lot, lua.Position{}, []string{"", "load", "adjust"}[w.draw(2)])
	case mayFail:
		b.fault(lot)
	}
}

func (b *beside) save() {
	b.w.saveMySQL()
	b.w.saveRedis()
	b.s.Save()
}

func (b *beside) claim(api, lot int) {
	seen := b.w.seen[api][lot]
	reported, asks := b.w.claim(api, lot, false)
	now, isAsking := b.s.Claim(lot, seen)
	if asks != isAsking || !asks && now != (lua.Position{}) && now != b.w.seen[api][lot] {
		b.w.wrong = fmt.Errorf("%w: a claim of lot %d sees %+v, asks %t, not %+v, %t", errTable, lot, now, isAsking, b.w.seen[api][lot], asks)
		return
	}
	if asks {
		b.recover(lot, reported, "")
	}
}

// book has a MySQL that was restored noticed first, as a flush does.
func (b *beside) book() {
	if slices.ContainsFunc(b.w.redis.flushes, func(id int) bool { return !b.w.mysql.flushes[id] }) {
		b.watch()
	}
	b.w.drain()
	b.s.Book()
}

// watch observes the partition and, of the lots, those that were evicted and that Redis holds.
func (b *beside) watch() {
	w := b.w
	w.notef("watch")
	b.run(actor{watches: true}, isOfPartition, "")
	for i := range lotCount {
		m, r := &w.mysql.lots[i], &w.redis.lots[i]
		if m.residency == models.ResidencyEvicted && r.hasState() && r.epoch <= m.epoch {
			b.run(actor{lot: i}, isRecorded, "")
		}
	}
	b.s.Watch()
}

// recover has a run record what was reported, and another one load the lot. A MySQL that was restored is noticed before: a check of a lot
// does not compare flushes, a watch does each second.
func (b *beside) recover(lot int, reported lua.Position, failing string) {
	if b.w.isUnnoticed {
		b.watch()
	}
	if m := &b.w.mysql.lots[lot]; m.attempts == 0 || m.isRolledBack {
		failing = "" // a first load is tried twice, with others and by itself; after a rollback of MySQL it is the leader who loads
	}
	b.w.notef("recover lot %d by %+v, fails at %q", lot, reported, failing)
	if reported != (lua.Position{}) {
		b.run(actor{lot: lot, reported: reported}, isRecorded, "")
	}
	b.run(actor{lot: lot}, nil, failing)
	b.s.Recover(lot, reported, failing)
}

// evict evicts a lot that is open, if MySQL has all of it.
func (b *beside) evict(lot int) {
	w := b.w
	m, r := &w.mysql.lots[lot], &w.redis.lots[lot]
	if m.residency != models.ResidencyResident || r.held != Present || r.status != models.StatusOpen || r.epoch != m.epoch || r.seq != m.synced {
		return
	}
	w.notef("lot %d is evicted", lot)
	*r = redisLot{tomb: &Tombstone{Epoch: r.epoch, Seq: int64(r.seq)}}
	m.residency = models.ResidencyEvicted
	b.s.Evict(lot)
}

func (b *beside) fault(lot int) {
	w := b.w
	at := len(w.mysqlPast) - 1 - min(len(w.mysqlPast)-1, w.draw(2))
	switch w.draw(5) {
	case 0, 1:
		w.restoreMySQL(at)
		w.redisPast = w.redisPast[:at+1]
		b.s.RestoreMySQL(at)
	case 2, 3:
		w.restoreRedis(at)
		w.mysqlPast = w.mysqlPast[:at+1]
		b.s.RestoreRedis(at)
	case 4:
		w.flushAll()
		b.s.FlushAll()
	case 5:
		if which := w.draw(2); !w.isUnnoticed {
			w.deleteKey(lot, which)
			b.s.DeleteKey(lot, which)
		}
	}
}

// isOfPartition and isRecorded are the steps of runs that load nothing.
func isOfPartition(a Action) bool {
	return slices.Contains([]Action{"", WaitReplica, BeginGeneration, RecordStream, StopPartition}, a)
}

func isRecorded(a Action) bool {
	return isOfPartition(a) || slices.Contains([]Action{ObserveAgain, RecordSeen, RecordEviction, Fence, MarkLost}, a)
}

// run runs an actor of the model alone, as long as its steps are within the given ones, until it waits for another process, or until it
// would send a script that fails.
func (b *beside) run(a actor, within func(Action) bool, failing string) {
	w := b.w
	run := w.start(a)
	defer w.killAll()
	for n := 0; ; n++ {
		label, more := run.next()
		if !more || n > 1000 || label == "wait" && run.last.Action != WaitReplica && run.last.Action != ObserveAgain ||
			within != nil && !within(run.last.Action) ||
			failing == "load" && label == "staged" || failing == "adjust" && label == string(Adjust) {
			break
		}
	}
	w.mysql.lots[a.lot].loader = 0 // it is released
}
