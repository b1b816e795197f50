package recovery

import (
	"dibs/lua"
	"dibs/models"
)

// view is an observation of a lot by its kind: all that the table distinguishes, and nothing else. Its fields are small, so that all views
// can be enumerated.
type view struct {
	residency residency
	held      held
	epoch     epoch // of what Redis holds
	isBefore  bool  // the previous observation found the same load in Redis
	isBehind  bool  // Redis holds fewer claims than MySQL knows of
	tombstone tombstone
	copied    copied

	isOtherStream bool // the stream lost entries since the lot was loaded
	isRolledBack  bool
	isBlind       bool

	hasTip, isAcknowledged, isSettled bool
	isCut                             bool // the stream ends before the fence tip
	rows                              rowsSeen
	isMissing                         bool // claims
	parked                            parked
	isStreamRead, areRecordsRead      bool
	isLoading                         bool // another process loads it
	reported                          reported
	definition                        definition
	isIdle, differs                   bool
}

type (
	residency  uint8
	held       uint8
	epoch      uint8
	tombstone  uint8
	copied     uint8
	rowsSeen   uint8
	parked     uint8
	reported   uint8
	definition uint8
)

const (
	none residency = iota
	resident
	evicted
	lost
)

const (
	absent held = iota
	damagedOpen
	damagedFenced
	open
	fenced
	loading
)

const (
	epochSame   epoch = iota
	epochOlder        // than MySQL's
	epochNewer        // MySQL handed the number out
	epochBeyond       // MySQL did not hand the number out
)

const (
	noTombstone tombstone = iota
	exact
	claimsAhead // of MySQL
	loadAhead   // of MySQL
	stale       // of an earlier load
)

const (
	noCopy copied = iota
	matching
	outdated
)

const (
	uncounted rowsSeen = iota
	agree
	contradict
)

const (
	noneParked parked = iota
	toRestore
	displaced
	unwritable
)

const (
	unreported  reported = iota
	moreClaims           // of this load
	laterLoad            // and its claims
	laterLoadNo          // a later load whose claims are known
)

const (
	definitionSame definition = iota
	definitionOld
	unapplied
	definitionAhead
	packetsMissing
)

const (
	mysqlEpoch, mysqlAttempts = 5, 6
	mysqlSeq                  = 10
)

// lot is an observation of the view's kind.
func (v *view) lot() *Lot {
	l := &Lot{
		Found: true, Generation: "stream 1", Acknowledged: v.isAcknowledged, Settled: v.isSettled, IsToBeEvicted: v.isIdle,
		MySQL: MySQL{
			Residency:    [...]models.Residency{models.ResidencyNone, models.ResidencyResident, models.ResidencyEvicted, models.ResidencyLost}[v.residency],
			IsRolledBack: v.isRolledBack, Epoch: mysqlEpoch, LoadAttempts: mysqlAttempts, Generation: "stream 1",
			Version: 3, AppliedVersion: 3, SyncedSeq: mysqlSeq, Claimed: mysqlSeq, MayLackClaims: v.isBlind,
		},
		Evidence: Evidence{IsStreamRead: v.isStreamRead, AreRecordsRead: v.areRecordsRead, RedisDiffers: v.differs},
	}
	m, e := &l.MySQL, &l.Evidence
	if v.isOtherStream {
		l.Generation = "stream 2"
	}
	if v.hasTip {
		m.FenceTip = &lua.EntryID{Ms: 1}
	}
	if !v.isCut {
		l.StreamTip = lua.EntryID{Ms: 2}
	}
	if v.isMissing && v.tombstone != claimsAhead {
		m.SeenSeq = mysqlSeq + 1
	}
	if v.rows != uncounted {
		e.Rows = &Rows{Claims: mysqlSeq, LastSeq: mysqlSeq, SyncedSeq: mysqlSeq}
	}
	if v.rows == contradict {
		e.Rows.Differ = true
	}
	switch v.parked {
	case noneParked:
	case toRestore:
		e.ParkedToRestore = 1
	case displaced:
		e.Displaced = 1
	case unwritable:
		e.Unwritable = 1
	}
	if v.isLoading {
		l.IsLoading = true
	}
	switch v.reported {
	case unreported:
	case moreClaims:
		l.Reported = lua.Position{Epoch: mysqlEpoch, Seq: mysqlSeq + 2}
	case laterLoad:
		l.Reported = lua.Position{Epoch: mysqlAttempts + 2, Seq: mysqlSeq + 2}
	case laterLoadNo:
		l.Reported = lua.Position{Epoch: mysqlAttempts + 2, Seq: 1}
	}
	v.setRedis(l)
	return l
}

func (v *view) setRedis(l *Lot) {
	m, r := &l.MySQL, &l.Redis
	r.Held = [...]Held{Absent, Damaged, Damaged, Present, Present, Present}[v.held]
	r.Status = [...]models.Status{"", models.StatusOpen, models.StatusFenced, models.StatusOpen, models.StatusFenced, models.StatusLoading}[v.held]
	if v.held != absent {
		r.At = lua.Position{Epoch: [...]int64{mysqlEpoch, mysqlEpoch - 1, mysqlEpoch + 1, mysqlAttempts + 1}[v.epoch], Seq: max(mysqlSeq, m.SeenSeq), Version: 3}
	}
	if v.isBefore {
		l.Before = Before{Epoch: r.At.Epoch, IsTaking: v.isTaking()}
	}
	if v.isBehind {
		r.At.Seq = mysqlSeq - 1
	}
	switch v.definition {
	case definitionSame:
	case definitionOld:
		m.Version = 4
	case unapplied:
		m.Version, r.At.Version = 4, 4
	case definitionAhead:
		r.At.Version = 4
	case packetsMissing:
		r.LacksPushed = true
	}
	switch v.tombstone {
	case noTombstone:
	case exact:
		r.Tombstone = &Tombstone{mysqlEpoch, mysqlSeq}
	case claimsAhead:
		r.Tombstone = &Tombstone{mysqlEpoch, mysqlSeq + 1}
	case loadAhead:
		r.Tombstone = &Tombstone{mysqlAttempts + 1, mysqlSeq}
	case stale:
		r.Tombstone = &Tombstone{mysqlEpoch - 1, mysqlSeq - 1}
	}
	if v.held == loading {
		r.At.Version = 0
		r.At.Seq = min(r.At.Seq, mysqlSeq)
		r.Copy = &Copy{SyncedSeq: mysqlSeq, Generation: l.Generation}
		if v.residency == resident && v.isMissing && !v.isBehind {
			r.At.Seq = m.SeenSeq
		}
	}
	if v.copied == outdated {
		r.Copy.SyncedSeq--
	}
}

// isOpen reports whether the lot takes claims, as MySQL knows it.
func (v *view) isOpen() bool {
	return v.residency == resident && v.held == open && v.epoch == epochSame && !v.isBehind && !v.isOtherStream
}

func (v *view) isTaking() bool { return v.held == open || v.held == damagedOpen }

// after lists what may be seen after a step was done to what the view shows.
func (v view) after(a Action) []view { //nolint:gocyclo,cyclop // a case a step
	w := v
	switch a {
	case ObserveAgain:
		w.isBefore = true
		if v.epoch != epochNewer {
			return []view{w}
		}
		return []view{w, view{}.opened(v)} // MySQL had confirmed it
	case RecordSeen:
		w.isMissing, w.reported = true, unreported
		if v.reported == laterLoad {
			w.reported = laterLoadNo
		}
		if behind := w; v.residency == resident && (v.held == open || v.held == loading) && v.epoch == epochSame {
			behind.isBehind = true
			return []view{w, behind}
		}
	case Fence:
		w.held, w.isBefore, w.definition, w.isIdle, w.differs, w.copied = fenced, false, definitionSame, false, false, noCopy
		if v.residency == lost { // it took claims until now, perhaps
			w.hasTip, w.isCut, w.isAcknowledged = false, false, false
		}
		if v.held == damagedOpen {
			w.held = damagedFenced
		}
		return []view{w}
	case MarkLost:
		w.residency, w.hasTip, w.definition, w.isIdle, w.differs = lost, true, definitionSame, false, false
		w.isAcknowledged = true
		unread := w
		unread.isAcknowledged = false
		return []view{w, unread}
	case StopPartition: // which forgets the fence tip
		w.isOtherStream, w.isCut, w.hasTip = true, false, false
		if v.held == loading {
			w.held, w.copied = fenced, noCopy
		}
		blind := w
		blind.isBlind = true
		return []view{w, blind}
	case Push:
		w.definition = definitionOld
	case Adjust:
		w.held, w.definition, w.copied = open, unapplied, noCopy
	case RecordApplied:
		w.definition = definitionSame
	case Evict:
		gone := w
		w.isIdle = false
		gone.isIdle, gone.held, gone.tombstone = false, absent, exact
		return []view{w, gone}
	case RecordEviction:
		w.residency = evicted
	case Load:
		w.held, w.epoch, w.copied, w.tombstone, w.isBehind, w.isBefore = loading, epochNewer, matching, noTombstone, false, false
		if v.rows != uncounted {
			return []view{w}
		}
		refused := v // nothing was put in force
		w.rows, refused.rows = agree, contradict
		return []view{w, refused}
	case Confirm:
		return []view{view{}.opened(v).loading()}
	case CountRows:
		w.rows = agree
		other := v
		other.rows = contradict
		return []view{w, other}
	case RestoreParked:
		w.parked = noneParked
	case RestoreStream, RestoreRecords:
		w.isStreamRead = true
		w.areRecordsRead = v.areRecordsRead || a == RestoreRecords
		found := w
		found.isMissing, found.rows = false, agree
		if v.tombstone == claimsAhead {
			found.tombstone = exact
		}
		return []view{w, found}
	case CorrectCounters:
		w.rows = agree
	case RenumberDisplaced:
		w.parked = noneParked
		other := w
		other.parked = unwritable
		return []view{w, other}
	case GiveUpClaims:
		w.isMissing, w.rows = false, agree
		if v.tombstone == claimsAhead {
			w.tombstone = exact
		}
	case GiveUpUnrecorded:
		w.isBlind = false
	case GiveUpParked:
		w.parked = noneParked
	case WaitConsumers:
		w.isAcknowledged = !v.isCut
	case WaitLoader:
		w.isLoading = false
	default:
		panic("no effect of " + a)
	}
	return []view{w}
}

// opened is a lot that was loaded from what was seen of it before.
func (view) opened(was view) view {
	return view{
		residency: resident, held: open, rows: was.rows, parked: was.parked, isSettled: true,
		isStreamRead: was.isStreamRead, areRecordsRead: was.areRecordsRead,
	}
}

func (v view) loading() view {
	v.held = loading
	return v
}
