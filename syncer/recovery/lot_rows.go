package recovery

import "dibs/models"

// lotRows is the table of a lot. The rows of a lot that is resident, away and lost follow each other; those from L25 on are for both a lot
// that takes claims while an operator repairs it and a lot that is lost.
var lotRows = []row[Lot]{
	same("L1", "MySQL has no such lot, or another number of partitions", Refuse, func(l *Lot) bool { return !l.Found || l.OtherLayout }),
	same("L2", "Redis takes claims under a load that MySQL confirmed after it was read, or does not have", ObserveAgain, (*Lot).isNewer),
	same("L3", "resident, and Redis has fewer claims than a caller saw, and is not fenced", Fence,
		func(l *Lot) bool { return l.isBehindReport() && l.mayTake() }),
	same("L4", "a caller saw more claims than MySQL knows of", RecordSeen, func(l *Lot) bool {
		return l.Reported.Epoch >= l.MySQL.Epoch && l.Reported.Seq > max(l.MySQL.SyncedSeq, l.MySQL.SeenSeq)
	}),
	same("L5", "a caller saw a newer load than MySQL has handed out; Redis takes claims", Fence,
		func(l *Lot) bool { return l.isForgotten() && l.IsTaking() }),
	same("L6", "a caller saw a newer load than MySQL has handed out", MarkLost, (*Lot).isForgotten),

	// Resident by MySQL.
	same("L7", "sound, and packets are missing in Redis", Push,
		func(l *Lot) bool { return l.IsSound() && l.Redis.LacksPushed }),
	same("L8", "sound, and being loaded, or Redis has an older definition", Adjust, func(l *Lot) bool {
		return l.IsSound() && (l.Redis.Status == models.StatusLoading || l.Redis.At.Version < l.MySQL.Version)
	}),
	same("L9", "sound, and MySQL does not know that Redis has the definition", RecordApplied,
		func(l *Lot) bool {
			return l.IsSound() && l.Redis.At.Version == l.MySQL.Version && l.MySQL.AppliedVersion < l.MySQL.Version
		}),
	{name: "L10", when: "sound, idle, in an eviction pass", auto: Evict, holds: func(l *Lot) bool { return l.IsSound() && l.IsToBeEvicted }},
	{name: "L11", when: "sound", auto: None, holds: (*Lot).IsSound},
	operator("L12", "sound, and Redis has a newer definition than MySQL", Fence,
		func(l *Lot) bool { return l.IsSound() && l.Redis.At.Version > l.MySQL.Version }),
	same("L13", "resident, evicted by Redis just as MySQL has it", RecordEviction,
		func(l *Lot) bool { return l.MySQL.Residency == models.ResidencyResident && l.IsEvicted() }),
	same("L14", "resident, and anything else; Redis is not fenced", Fence, func(l *Lot) bool { return l.isDoubtful() && l.mayTake() }),
	same("L15", "resident, and anything else", MarkLost, (*Lot).isDoubtful),

	// Not in Redis by MySQL.
	same("L16", "not resident, and Redis takes claims", Fence, func(l *Lot) bool { return (l.isAway() || l.isLost()) && l.IsTaking() }),
	same("L17", "away, and Redis holds it, other than as a copy", MarkLost, func(l *Lot) bool { return l.isAway() && l.isStrange() }),
	same("L18", "away, and MySQL has less than Redis remembers to have evicted", MarkLost,
		func(l *Lot) bool { return l.isAway() && l.IsBehindTombstone() }),
	same("L19", "lost, and the stream's tip after the fence is not recorded", MarkLost,
		func(l *Lot) bool { return l.isLost() && l.MySQL.FenceTip == nil }),
	same("L20", "lost, and the stream ends before that tip", StopPartition,
		func(l *Lot) bool { return l.isLost() && l.MySQL.FenceTip != nil && l.StreamTip.Less(*l.MySQL.FenceTip) }),
	same("L21", "another process loads it", WaitLoader, func(l *Lot) bool { return !l.IsSound() && l.IsLoading }),
	same("L22", "away, and claims are missing", MarkLost, func(l *Lot) bool { return l.isAway() && l.Missing() > 0 }),

	// Lost: what proves that MySQL has every claim.
	{name: "L23", when: "lost, and the stream lost entries since it was loaded, or Redis evicted more than MySQL has", auto: Refuse,
		holds: func(l *Lot) bool { return l.isLost() && (l.MySQL.Generation != l.Generation || l.IsBehindTombstone()) }},
	same("L24", "lost, and claims may be on their way into MySQL", WaitConsumers, func(l *Lot) bool { return l.isLost() && !l.Acknowledged }),

	// Operators: rows come back from all evidence, with the lot open as long as nothing is taken from it.
	operator("L25", "the rows are not counted", CountRows, func(l *Lot) bool { return l.Evidence.Rows == nil }),
	operator("L26", "parked claims may be written", RestoreParked, func(l *Lot) bool { return l.Evidence.ParkedToRestore > 0 }),
	operator("L27", "lost, or claims are missing or counters differ; the stream is not searched", RestoreStream,
		func(l *Lot) bool { return (l.isLost() || l.IsSound() && l.lacksEvidence()) && !l.Evidence.IsStreamRead }),
	operator("L28", "the same; Redis holds the lot, and its records are not searched", RestoreRecords,
		func(l *Lot) bool {
			return (l.isLost() || l.IsSound() && l.lacksEvidence()) && l.Redis.Held == Present && l.MySQL.ArchivedClaims == 0 &&
				!l.Evidence.AreRecordsRead
		}),
	{name: "L29", when: "sound, and claims are missing", repair: Refuse, holds: func(l *Lot) bool { return l.IsSound() && l.Missing() > 0 }},
	operator("L30", "sound, and a seq was handed out twice, or users' records in Redis differ", Fence,
		func(l *Lot) bool { return l.IsSound() && (l.Evidence.Displaced > 0 || l.Evidence.RedisDiffers) }),
	{name: "L31", when: "sound, and claims are to be given up", giveUp: Fence,
		holds: func(l *Lot) bool { return l.IsSound() && (l.Missing() > 0 || l.Evidence.Unwritable > 0) }},
	{name: "L32", when: "lost, and a claim lost its seq to another", auto: Refuse, repair: RenumberDisplaced, giveUp: RenumberDisplaced,
		holds: func(l *Lot) bool { return l.isLost() && l.Evidence.Displaced > 0 }},
	{name: "L33", when: "claims are missing", auto: Refuse, repair: Refuse, giveUp: GiveUpClaims,
		holds: func(l *Lot) bool { return l.Missing() > 0 }},
	{name: "L34", when: "counters contradict the rows", auto: Refuse, repair: CorrectCounters, giveUp: CorrectCounters,
		holds: (*Lot).differs},
	{name: "L35", when: "the stream was lost, and nothing recorded how far the lot was", auto: Refuse, repair: Refuse,
		giveUp: GiveUpUnrecorded, holds: func(l *Lot) bool { return l.isLost() && l.MySQL.MayLackClaims }},
	{name: "L36", when: "parked claims can neither be written nor get a new seq", auto: Refuse, repair: Refuse, giveUp: GiveUpParked,
		holds: func(l *Lot) bool { return !l.isAway() && l.Evidence.Unwritable > 0 }},
	operator("L37", "sound", None, (*Lot).IsSound),

	// Nothing is missing: it is loaded.
	same("L38", "Redis holds a copy of what MySQL has", Confirm, (*Lot).isCopied),
	same("L39", "else", Load, always[Lot]),
}

// isForgotten reports whether MySQL forgot a load: a caller saw it open.
func (l *Lot) isForgotten() bool {
	return !l.isLost() && l.Reported.Epoch > max(l.MySQL.Epoch, l.MySQL.LoadAttempts)
}

func (l *Lot) isBehindReport() bool {
	at := l.Redis.At
	seen := l.Reported
	return l.MySQL.Residency == models.ResidencyResident && (at.Epoch < seen.Epoch || at.Epoch == seen.Epoch && at.Seq < seen.Seq)
}

func (l *Lot) isDoubtful() bool { return l.MySQL.Residency == models.ResidencyResident && !l.IsSound() }

func operator(name, when string, action Action, holds func(*Lot) bool) row[Lot] {
	return row[Lot]{name: name, when: when, holds: holds, repair: action, giveUp: action}
}
