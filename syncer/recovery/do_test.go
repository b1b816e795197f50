package recovery

import (
	"slices"

	"dibs/lua"
	"dibs/models"
)

// loaderFor is for how many turns a loader has a lot to itself.
const loaderFor = 15

// do carries a step out. Between any two calls to a server others may go on.
func (a *actor) do(o *observed, step Step) {
	w, was := a.w, &o.mysql.lots[a.lot]
	m, r := &w.mysql.lots[a.lot], &w.redis.lots[a.lot]
	isAsSeen := func() bool { return m.epoch == was.epoch && m.residency == was.residency }
	a.at(string(step.Action))
	switch step.Action {
	case BeginGeneration:
		if w.redis.generation == 0 {
			w.generation++
			w.redis.generation = w.generation
		}
		at := w.redis.generation
		a.at("redis has a generation")
		if w.mysql.generation == 0 {
			w.mysql.generation, w.mysql.recordedAt = at, w.turns
		}
	case RecordStream:
		w.isUnnoticed = false
		a.recordStream(o)
	case StopPartition:
		w.isUnnoticed = false
		a.stopPartition(o)
	case RecordSeen:
		if m.epoch == was.epoch {
			m.seen = max(m.seen, int(a.reported.Seq))
			m.reported = max(m.reported, int(a.reported.Seq))
		}
	case Adjust:
		if r.held == Present && r.epoch == was.epoch && r.status == models.StatusLoading {
			r.status = models.StatusOpen
			a.checkOpened(o, step)
		}
	case Evict:
		if r.held == Present && r.status == models.StatusOpen && r.epoch == was.epoch && r.seq == was.synced {
			*r = redisLot{tomb: &Tombstone{Epoch: r.epoch, Seq: int64(r.seq)}}
		}
	case RecordEviction:
		if isAsSeen() && m.synced == was.synced {
			m.residency = models.ResidencyEvicted
		}
	case Fence:
		a.fence(o.redis.epoch)
		if o.stream.tip >= m.fenceTip-1 {
			m.fenceTip = 0
		}
		a.differs = false
	case MarkLost:
		a.markLost(o, step)
	case Load:
		a.load(o, step)
	case Confirm:
		if isAsSeen() && m.attempts == was.attempts && (m.loader == 0 || m.loaderUntil <= w.turns) {
			m.loader, m.loaderUntil = a.id, w.turns+loaderFor
			a.at("took over")
			a.confirm(o, o.redis.epoch, was)
		}
	default:
		a.repair(o, step)
	}
}

func (a *actor) fence(epoch int64) {
	if r := &a.w.redis.lots[a.lot]; r.hasState() && r.epoch <= epoch {
		r.status = models.StatusFenced
	}
}

// markLost has MySQL say that the lot takes no claims.
func (a *actor) markLost(o *observed, step Step) {
	w, was := a.w, &o.mysql.lots[a.lot]
	tip := o.stream.tip
	if w.flaw == flawOldTip {
		tip = a.lastTip
	}
	a.at("read the tip")
	m, r := &w.mysql.lots[a.lot], &w.redis.lots[a.lot]
	if m.epoch != was.epoch || m.residency != was.residency || m.loader != was.loader {
		return
	}
	if w.faults == o.faults && r.held != Absent && r.status == models.StatusOpen && r.epoch == m.epoch && o.redis.held != Absent {
		a.fail(o, step, "is lost while it takes claims")
	}
	if o.lot.IsBehindTombstone() {
		m.seen = max(m.seen, int(o.lot.Redis.Tombstone.Seq))
	}
	if m.residency != models.ResidencyLost {
		m.isRolledBack = o.lot.IsBehindTombstone()
		m.isEffect = !m.isRolledBack && o.lot.isEffect()
	}
	m.residency, m.fenceTip = models.ResidencyLost, tip+1
}

// isEffect reports whether what is wrong with a lot may follow from a loss that was not found yet.
func (l *Lot) isEffect() bool {
	m, r := &l.MySQL, &l.Redis
	isResident := m.Residency == models.ResidencyResident
	known := lua.Position{Epoch: m.Epoch, Seq: max(m.SyncedSeq, m.SeenSeq)}
	switch {
	case l.Reported.Epoch > max(m.Epoch, m.LoadAttempts):
		return true
	case !isResident, r.Held == Damaged:
		return false
	case r.Held == Absent, r.At.Epoch > m.Epoch:
		return true
	}
	return r.At.Behind(known) == "" && m.Generation == l.Generation
}

func (a *actor) recordStream(o *observed) {
	w := a.w
	m := &w.mysql
	remember := func() { w.redis.recorded = o.stream.tip }
	if w.flaw == flawRecordFirst {
		remember()
		a.at("remembered")
	}
	if m.generation == o.mysql.generation && m.tip == o.mysql.tip {
		m.tip, m.added, m.recordedAt, m.unbooked = o.stream.tip, o.stream.added, w.turns, a.unbooked(o)
		a.at("recorded")
		if w.redis.generation == o.mysql.generation {
			remember()
		}
	}
}

// stopPartition takes the lots of a partition out of use and renews its stream.
func (a *actor) stopPartition(o *observed) {
	w, isMySQL := a.w, o.partition.IsMySQLBehind()
	w.generation++
	fresh := w.generation
	renew := func() bool {
		if w.mysql.generation != o.mysql.generation {
			return false
		}
		w.mysql.generation, w.mysql.tip, w.mysql.added, w.mysql.recordedAt = fresh, w.redis.tip, w.redis.added, w.turns
		w.mysql.unbooked = [lotCount]place{}
		a.at("renewed in mysql")
		if w.redis.generation == o.stream.generation {
			w.redis.generation = fresh
		}
		return true
	}
	for i := range w.redis.lots {
		r, m := &w.redis.lots[i], &w.mysql.lots[i]
		isHeld := r.hasState() && (isMySQL || r.epoch <= m.epoch)
		if isHeld {
			r.status = models.StatusFenced
		}
		a.at("fenced")
		if w.mysql.generation != o.mysql.generation {
			return // another process stopped it
		}
		m.fenceTip = 0 // it is of this generation
		if u := o.mysql.unbooked[i]; u.epoch == m.epoch {
			m.reported = max(m.reported, u.seq)
			if w.flaw != flawForgets {
				m.seen = max(m.seen, u.seq)
			}
		}
		if isMySQL && r.held != Absent && r.epoch == m.epoch && r.seq > m.synced {
			m.seen = max(m.seen, r.seq)
			m.reported = max(m.reported, r.seq)
		}
		isAway := m.residency == models.ResidencyNone || m.residency == models.ResidencyEvicted
		isBrief := w.isBrief && (o.partition.Lacking == 0 || len(o.mysql.flushes) > 0)
		if isHeld && m.epoch > 0 || isMySQL && (isHeld || !isAway || !isBrief) {
			if m.residency != models.ResidencyLost || m.isEffect {
				m.isRolledBack, m.isEffect = isMySQL, false
			}
			m.residency = models.ResidencyLost
		}
		a.at("lost")
	}
	if renew() {
		a.at("renewed")
		w.redis.recorded = 0
		if isMySQL && o.mysql.generation != 0 { // else what is lacking is noticed next
			w.redis.flushes = nil
		}
	}
}

func (a *actor) load(o *observed, step Step) {
	w, was := a.w, &o.mysql.lots[a.lot]
	m, r := &w.mysql.lots[a.lot], &w.redis.lots[a.lot]
	if m.epoch != was.epoch || m.residency != was.residency || m.attempts != was.attempts || m.loader != 0 && m.loaderUntil > w.turns {
		return
	}
	epoch := step.Epoch
	m.attempts, m.loader, m.loaderUntil = epoch, a.id, w.turns+loaderFor
	a.at("begun")
	snap, generation := *m, o.mysql.generation
	a.at("staged")
	if was.epoch == 0 && was.residency != models.ResidencyLost && len(snap.rows)+len(snap.parked) > 0 { // it never took claims
		m.residency, m.fenceTip, m.loader = models.ResidencyLost, o.stream.tip+1, 0
		return
	}
	if int64(snap.seen) > int64(snap.synced+len(counting(&snap))) {
		a.tried.Rows = &Rows{}
		return // what was read contradicts itself: nothing is put in force
	}
	isReplaced := r.held == Absent || r.status == models.StatusLoading || r.held == Damaged || was.residency == models.ResidencyLost && r.status == models.StatusFenced
	if r.held != Absent && r.epoch >= epoch || !isReplaced {
		return
	}
	records := snap.rows
	for seq, id := range counting(&snap) {
		records = with(records, seq, id)
	}
	*r = redisLot{
		held: Present, status: models.StatusLoading, epoch: epoch, seq: snap.synced + len(counting(&snap)), records: records,
		copied: &Copy{SyncedSeq: int64(snap.synced), LostClaims: int64(len(snap.gaveUp)), Generation: streamText(generation)},
	}
	a.at("loaded")
	a.confirm(o, epoch, &snap)
}

// confirm has MySQL say that the load is the lot's, if no one else started one and no claim got a row since the copy was made.
func (a *actor) confirm(o *observed, epoch int64, snap *mysqlLot) {
	w := a.w
	m := &w.mysql.lots[a.lot]
	was := &o.mysql.lots[a.lot]
	switch {
	case m.residency != was.residency, m.attempts != epoch:
	case m.loader != a.id:
	case m.synced != snap.synced:
	case len(m.gaveUp) != len(snap.gaveUp):
	case m.seen != snap.seen && w.flaw != flawNoSeen:
	case w.mysql.generation != o.mysql.generation:
	default:
		m.epoch, m.residency, m.generation, m.seen = epoch, models.ResidencyResident, w.mysql.generation, 0
		m.fenceTip, m.loader, m.isRolledBack = 0, 0, false
	}
}

// repair carries out a step that brings rows back, or gives claims up. Each is one transaction.
func (a *actor) repair(o *observed, step Step) {
	w := a.w
	m, r := &w.mysql.lots[a.lot], &w.redis.lots[a.lot]
	isLost := m.residency == models.ResidencyLost
	switch step.Action {
	case CountRows:
		a.tried.Rows = &Rows{}
	case RestoreStream:
		for _, e := range w.redis.entries {
			if e.lot == a.lot && e.at <= w.redis.acked {
				w.write(m, e.seq, e.claim)
			}
		}
		a.tried.IsStreamRead = true
	case RestoreRecords:
		if a.tried.AreRecordsRead = true; r.held == Present && w.redis.acked >= w.redis.tip {
			for seq := 1; seq <= r.seq; seq++ {
				if id, has := r.records[seq]; has {
					w.write(m, seq, id)
				}
			}
		}
	case RenumberDisplaced:
		if !isLost {
			return
		}
		for id, seq := range m.parked {
			if counting(m)[seq] == id {
				continue
			}
			m.rows, m.synced = with(m.rows, 1+max(a.highest(m), m.synced, r.seq), id), m.synced+1
			m.parked = without(m.parked, id)
			return
		}
	case GiveUpClaims:
		a.giveUp(o, step, m)
	default:
		a.fail(o, step, "no such step")
	}
}

func (a *actor) giveUp(o *observed, step Step, m *mysqlLot) {
	if a.policy != GiveUp {
		a.fail(o, step, "gives up unasked")
	}
	if m.residency != models.ResidencyLost {
		return
	}
	parked := counting(m)
	for seq := 1; seq <= a.highest(m); seq++ {
		if m.rows[seq] == 0 && parked[seq] == 0 && !m.gaveUp[seq] {
			m.gaveUp = with(m.gaveUp, seq, true)
		}
	}
	m.synced = len(m.rows) + len(m.gaveUp)
}

// highest is the highest seq of a lot that was handed out, by all that shows it.
func (a *actor) highest(m *mysqlLot) int {
	highest := m.seen
	for seq := range m.rows {
		highest = max(highest, seq)
	}
	for _, seq := range m.parked {
		highest = max(highest, seq)
	}
	r := &a.w.redis.lots[a.lot]
	if r.held == Present && len(r.records)+len(m.gaveUp) == r.seq {
		highest = max(highest, r.seq)
	}
	if r.tomb != nil {
		highest = max(highest, int(r.tomb.Seq))
	}
	return highest
}

// checkOpened says what a lot lacks that has just been opened: an answered claim that something still knows of. A fault since the lot was
// observed is for the next observation.
func (a *actor) checkOpened(o *observed, step Step) {
	w := a.w
	if w.faults != o.faults {
		return
	}
	m, r := &w.mysql.lots[a.lot], &w.redis.lots[a.lot]
	var held []int
	for _, id := range r.records {
		held = append(held, id)
	}
	for id, c := range w.answered {
		if c.lot != a.lot || slices.Contains(held, id) || m.gaveUp[c.seq] {
			continue
		}
		isRow := m.rows[c.seq] == id
		_, isParked := m.parked[id]
		isEntry := slices.ContainsFunc(w.redis.entries, func(e entry) bool { return e.claim == id })
		isNumbered := r.records[c.seq] == 0 && (c.seq <= m.seen || c.seq <= r.seq)
		if isRow || isParked || isEntry || isNumbered {
			a.fail(o, step, "opens without a claim that is known")
		}
	}
	if r.seq < m.reported {
		a.fail(o, step, "opens without a seq that was reported or recorded")
	}
	m.reported = 0
	if len(r.records) > total {
		a.fail(o, step, "opens with more than there is")
	}
}
