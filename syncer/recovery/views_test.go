package recovery

import "iter"

var (
	bools   = []bool{false, true}
	onlyOff = []bool{false}
	epochs  = []epoch{epochSame, epochOlder, epochNewer, epochBeyond}
)

// redisViews lists what Redis may hold of a lot.
func redisViews(of residency) (all []view) {
	for _, t := range []tombstone{noTombstone, exact, claimsAhead, loadAhead, stale} {
		all = append(all, view{held: absent, tombstone: t})
	}
	all = append(all, view{held: damagedOpen}, view{held: damagedFenced})
	for _, e := range epochs {
		all = append(all, view{held: open, epoch: e}, view{held: fenced, epoch: e}, view{held: loading, epoch: e, copied: outdated})
	}
	all = append(all,
		view{held: open, epoch: epochNewer, isBefore: true}, view{held: open, epoch: epochBeyond, isBefore: true},
		view{held: open, isBehind: true}, view{held: fenced, isBehind: true},
		view{held: loading, epoch: epochNewer, copied: matching})
	if of == resident {
		all = append(all, view{held: loading, copied: matching})
	}
	return all
}

// streamViews lists what may be known of the stream that a lot was loaded under.
func streamViews(of residency) (all []view) {
	switch of {
	case lost:
		for _, isRolledBack := range bools {
			for _, isBlind := range bools {
				all = append(all, view{isOtherStream: true, isRolledBack: isRolledBack, isBlind: isBlind})
			}
		}
		return append(all, view{})
	case resident:
		return []view{{}, {isOtherStream: true}}
	}
	return []view{{}}
}

// ackViews lists how far the consumers may be.
func ackViews(of residency) []view {
	switch of {
	case lost:
		return []view{{}, {hasTip: true}, {hasTip: true, isCut: true}, {hasTip: true, isAcknowledged: true}}
	case resident:
		return []view{{}, {isSettled: true}}
	}
	return []view{{}}
}

// evidenceViews lists what a run may have collected.
func evidenceViews(of residency) (all []view) {
	parkedOnes, tried := []parked{noneParked, toRestore, displaced, unwritable}, bools
	if of == none || of == evicted {
		parkedOnes, tried = []parked{noneParked, toRestore}, onlyOff
	}
	for _, rows := range []rowsSeen{uncounted, agree, contradict} {
		for _, isMissing := range bools {
			for _, p := range parkedOnes {
				all = append(all, view{rows: rows, isMissing: isMissing, parked: p})
				if tried[len(tried)-1] {
					all = append(all, view{rows: rows, isMissing: isMissing, parked: p, isStreamRead: true},
						view{rows: rows, isMissing: isMissing, parked: p, isStreamRead: true, areRecordsRead: true})
				}
			}
		}
	}
	return all
}

// otherViews lists the rest, each of it with nothing else in its way.
func otherViews(of residency) (all []view) {
	all = append(all, view{}, view{isLoading: of != resident})
	for _, r := range []reported{moreClaims, laterLoad, laterLoadNo} {
		all = append(all, view{reported: r})
	}
	if of == resident {
		for _, d := range []definition{definitionOld, unapplied, definitionAhead, packetsMissing} {
			all = append(all, view{definition: d}, view{definition: d, isIdle: true})
		}
		all = append(all, view{isIdle: true}, view{differs: true})
	}
	return all
}

// views enumerates every kind of observation.
func views() iter.Seq[view] {
	return func(yield func(view) bool) {
		for _, of := range []residency{none, resident, evicted, lost} {
			redis, streams, acks, evidence, others := redisViews(of), streamViews(of), ackViews(of), evidenceViews(of), otherViews(of)
			for r := range redis {
				for s := range streams {
					for a := range acks {
						for e := range evidence {
							for o := range others {
								v := join(of, &redis[r], &streams[s], &acks[a], &evidence[e], &others[o])
								if v.isPossible() && !yield(v) {
									return
								}
							}
						}
					}
				}
			}
		}
	}
}

func join(of residency, redis, stream, ack, evidence, other *view) view {
	v := *redis
	v.residency = of
	v.isOtherStream, v.isRolledBack, v.isBlind = stream.isOtherStream, stream.isRolledBack, stream.isBlind
	v.hasTip, v.isCut, v.isAcknowledged, v.isSettled = ack.hasTip, ack.isCut, ack.isAcknowledged, ack.isSettled
	v.rows, v.isMissing, v.parked = evidence.rows, evidence.isMissing, evidence.parked
	v.isStreamRead, v.areRecordsRead = evidence.isStreamRead, evidence.areRecordsRead
	v.isLoading, v.reported = other.isLoading, other.reported
	v.definition, v.isIdle, v.differs = other.definition, other.isIdle, other.differs
	return v
}

// isPossible leaves out what contradicts itself.
func (v *view) isPossible() bool {
	isChanged := v.definition != definitionSame || v.isIdle || v.differs
	switch {
	case v.tombstone == claimsAhead && !v.isMissing,
		v.areRecordsRead && v.held != fenced && v.held != open,
		isChanged && !v.isOpen(),
		v.residency == resident && v.held == loading && v.epoch == epochSame && v.copied == outdated,
		v.copied == matching && (v.isMissing || v.rows == contradict) && v.epoch != epochSame:
		return false
	}
	return true
}
