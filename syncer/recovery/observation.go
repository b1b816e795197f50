package recovery

import (
	"time"

	"dibs/lua"
	"dibs/models"
)

// Partition is what was observed of a partition: first what Redis remembers of MySQL's commits, then MySQL, then Redis.
type Partition struct {
	Known      bool        // MySQL has a row of the stream
	Remembered lua.EntryID // Redis remembers that MySQL had recorded the stream up to here
	Lacking    int         // flushes that Redis remembers and MySQL lacks
	Rounds     int         // how many observations in a row, this one included, found MySQL behind

	Recorded      lua.StreamPosition // by MySQL
	RecordedAge   time.Duration
	Stream        lua.StreamPosition // in Redis
	UnbookedMoved bool               // the seqs without a row are others than those recorded
	Watching      bool               // the caller records how far streams are
}

// IsMySQLBehind reports whether Redis remembers commits that MySQL lacks. No stream has entries before MySQL has its row.
func (p *Partition) IsMySQLBehind() bool {
	return p.Lacking > 0 || p.Recorded.Tip.Less(p.Remembered) || !p.Known && p.Stream.Added > 0
}

func (p *Partition) isRedisBehind() bool {
	return lua.Position{Stream: p.Stream}.Behind(lua.Position{Stream: p.Recorded}) != ""
}

func (p *Partition) isRecorded() bool {
	return !p.Watching || p.Stream == p.Recorded && p.Remembered == p.Recorded.Tip && !p.UnbookedMoved && p.RecordedAge <= recordedAgeMax
}

// Lot is what was observed of a lot of an intact partition, MySQL before Redis, and what the run knows beside.
type Lot struct {
	Found         bool // MySQL has the lot
	OtherLayout   bool // MySQL's number of partitions is not this process's
	MySQL         MySQL
	Redis         Redis
	Generation    string       // of the claim stream, in MySQL and in Redis
	StreamTip     lua.EntryID  // of the claim stream in Redis
	Acknowledged  bool         // group syncer has acknowledged the stream up to MySQL.FenceTip
	Settled       bool         // group syncer has acknowledged all of the stream
	Reported      lua.Position // the highest position that a caller saw
	Before        Before       // what the previous observation found in Redis
	IsLoading     bool         // another run loads it, and the time of that is not over
	Evidence      Evidence     // what the run has collected
	IsToBeEvicted bool         // by an eviction pass: it is idle, and MySQL has all its claims
}

// Before is what a run's previous observation found of a lot in Redis, before MySQL was read for this one.
type Before struct {
	Epoch    int64
	IsTaking bool // it took claims
}

// MySQL is a lot by MySQL.
type MySQL struct {
	Residency       models.Residency
	IsRolledBack    bool // it is lost because MySQL was rolled back
	Epoch           int64
	LoadAttempts    int64
	Generation      string       // of the claim stream when the lot was loaded
	FenceTip        *lua.EntryID // the stream's tip after the lot was fenced; nil: none is recorded of this generation
	Version         int64
	AppliedVersion  int64
	SyncedSeq       int64
	SeenSeq         int64 // highest that is known to have been handed out under this load
	Claimed         int64
	LostClaims      int64
	ReleasedClaims  int64
	AppliedReleases int64 // that Redis was notified of
	ArchivedClaims  int64
	ParkedClaims    int64 // that count as claimed
	ParkedSeq       int64 // the highest of these
	MayLackClaims   bool  // the stream was lost, and nothing recorded how far the lot was until then
}

// Held says whether Redis holds a lot.
type Held int

// Whether Redis holds a lot.
const (
	Absent Held = iota
	Damaged
	Present
)

// Redis is a lot in Redis.
type Redis struct {
	Held        Held
	Status      models.Status // as far as a damaged lot has one
	At          lua.Position
	LacksPushed bool       // packets that MySQL has are not in Redis
	Copy        *Copy      // of a lot with status loading
	Tombstone   *Tombstone // of a lot that is absent
}

// Copy is what a load was made from.
type Copy struct {
	SyncedSeq, LostClaims, ArchivedClaims int64
	Generation                            string
}

// Tombstone is what an eviction leaves in Redis until the next load.
type Tombstone struct{ Epoch, Seq int64 }

// Evidence is what a run has collected of a lot and that no single statement reads.
type Evidence struct {
	Rows            *Rows
	IsStreamRead    bool // rows whose events are in the stream are restored
	AreRecordsRead  bool // rows of claims that Redis has recorded are restored
	LacksRecords    bool // Redis counts claims that it has no record of
	RedisDiffers    bool // users' records in Redis are not those that the rows give
	Displaced       int  // parked claims whose seq another claim has; in a repair, those that can have a new one
	Unwritable      int  // parked claims that cannot be written, nor have a new seq
	ParkedToRestore int  // parked claims that may be written by now
}

// Rows are what the rows of a lot's claims add up to, archived ones included, and what the counters said at that moment.
type Rows struct {
	Claims, LastSeq int64
	SyncedSeq       int64 // the counter
	Differ          bool  // the counters contradict the rows
}

// IsSound reports whether a lot that is resident by MySQL is in Redis as MySQL knows it.
func (l *Lot) IsSound() bool {
	m := &l.MySQL
	r := &l.Redis
	if m.Residency != models.ResidencyResident || r.Held != Present || r.Status == models.StatusFenced {
		return false
	}
	known := lua.Position{Epoch: m.Epoch, Seq: max(m.SyncedSeq, m.SeenSeq), Version: m.AppliedVersion, Released: m.AppliedReleases}
	return r.At.Epoch == m.Epoch && m.Generation == l.Generation && r.At.Behind(known) == ""
}

// IsTaking reports whether Redis takes claims of the lot.
func (l *Lot) IsTaking() bool {
	s := l.Redis.Status
	return l.Redis.Held != Absent && (s == models.StatusOpen || s == models.StatusPaused || s == models.StatusClosed)
}

// mayTake reports whether Redis takes claims of the lot, or a run that confirmed its load may open it yet.
func (l *Lot) mayTake() bool {
	return l.IsTaking() || l.Redis.Held == Present && l.Redis.Status == models.StatusLoading
}

// isNewer reports whether the lot is open in Redis, or may be, under a load that MySQL did not know when it was read, and that Redis may
// have got since. MySQL knows a load before it is open.
func (l *Lot) isNewer() bool {
	isCopy := l.MySQL.Residency == models.ResidencyResident && l.mayTake() && !l.IsTaking()
	wasThere := l.Before.Epoch >= l.Redis.At.Epoch && (l.Before.IsTaking || isCopy)
	return (l.IsTaking() || isCopy) && l.Redis.At.Epoch > l.MySQL.Epoch && !wasThere
}

// isAway reports whether the lot is not in Redis by MySQL.
func (l *Lot) isAway() bool {
	return l.MySQL.Residency == models.ResidencyNone || l.MySQL.Residency == models.ResidencyEvicted
}

func (l *Lot) isLost() bool { return l.MySQL.Residency == models.ResidencyLost }

// IsEvicted reports whether Redis evicted just what MySQL has.
func (l *Lot) IsEvicted() bool {
	m := &l.MySQL
	t := l.Redis.Tombstone
	return l.Redis.Held == Absent && t != nil && m.Generation == l.Generation &&
		*t == Tombstone{m.Epoch, m.SyncedSeq}
}

// IsBehindTombstone reports whether MySQL has less of the lot than was evicted.
func (l *Lot) IsBehindTombstone() bool {
	m := &l.MySQL
	t := l.Redis.Tombstone
	return t != nil && (m.Epoch < t.Epoch || m.SyncedSeq < t.Seq)
}

// isStrange reports whether Redis holds something of a lot that is not there by MySQL, other than a copy, which never took claims.
func (l *Lot) isStrange() bool {
	r := &l.Redis
	return r.Held == Damaged || r.Held == Present && r.Status != models.StatusLoading
}

// isCopied reports whether Redis holds a copy of all that MySQL has, by the load that was started last, and MySQL has not confirmed it.
func (l *Lot) isCopied() bool {
	m := &l.MySQL
	r := &l.Redis
	known := Copy{
		SyncedSeq: m.SyncedSeq, LostClaims: m.LostClaims, ArchivedClaims: m.ArchivedClaims,
		Generation: l.Generation,
	}
	return r.Held == Present && r.Status == models.StatusLoading && r.At.Epoch > m.Epoch && r.At.Epoch == m.LoadAttempts &&
		r.Copy != nil && *r.Copy == known && r.At.Seq == m.SyncedSeq+m.ParkedClaims
}

// differs reports whether the counters in MySQL contradict the rows that were counted.
func (l *Lot) differs() bool { return l.Evidence.Rows != nil && l.Evidence.Rows.Differ }

// rows are those that were counted. Before, the counters stand for them.
func (l *Lot) rows() *Rows {
	if l.Evidence.Rows != nil {
		return l.Evidence.Rows
	}
	m := &l.MySQL
	return &Rows{Claims: m.SyncedSeq - m.LostClaims, LastSeq: m.SyncedSeq, SyncedSeq: m.SyncedSeq}
}

// HighestSeq is the highest seq that was handed out, by any evidence.
func (l *Lot) HighestSeq() int64 {
	m := &l.MySQL
	r := &l.Redis
	rows := l.rows()
	isRecorded := r.Held == Present && !l.Evidence.LacksRecords
	if l.IsSound() && isRecorded { // rows may have come since Redis was observed
		return max(r.At.Seq, m.SeenSeq)
	}
	highest := max(rows.LastSeq, m.SeenSeq, m.ParkedSeq)
	if r.Tombstone != nil {
		highest = max(highest, r.Tombstone.Seq)
	}
	if isRecorded {
		return max(highest, r.At.Seq)
	}
	return max(highest, rows.SyncedSeq+m.ParkedClaims) // nothing shows that the counter is wrong
}

// Missing is how many claims were answered, by any evidence, and have no row, are not parked and were not given up. Those of a lot that
// takes claims may be on their way while the consumers are behind: then it is how many rows are gone that the counter had counted.
func (l *Lot) Missing() int64 {
	m := &l.MySQL
	rows := l.rows()
	if l.IsSound() && !l.Settled {
		return rows.SyncedSeq - rows.Claims - m.LostClaims
	}
	return l.HighestSeq() - rows.Claims - m.ParkedClaims - m.LostClaims
}

// lacksEvidence reports whether rows may be missing, or counters wrong.
func (l *Lot) lacksEvidence() bool { return l.differs() || l.Missing() > 0 }
