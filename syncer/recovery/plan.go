package recovery

import "time"

const (
	// recordedAgeMax is how old MySQL's record of a stream may become while nothing moves. An older one means that no syncer was running.
	recordedAgeMax = 5 * time.Second
	// roundsMax observations distinguish a MySQL that was rolled back from a replica that lags.
	roundsMax = 4
)

// row is a row of a table: what is done by which policy where the condition holds.
type row[T any] struct {
	name, when           string
	holds                func(*T) bool
	auto, repair, giveUp Action
}

// PlanPartition decides what is done next to a partition.
func PlanPartition(p *Partition) Step { return plan(partitionRows, p, Auto) }

// PlanLot decides what is done next to a lot of a partition for which PlanPartition decides None.
func PlanLot(l *Lot, policy Policy) Step { return planLot(lotRows, l, policy) }

func planLot(rows []row[Lot], l *Lot, policy Policy) Step {
	if policy == Auto && l.isLost() && l.MySQL.IsRolledBack && l.Redis.Held == Present {
		policy = Repair // Redis has what MySQL lost
	}
	step := plan(rows, l, policy)
	if step.Action == Load || step.Action == Confirm {
		step.Epoch = l.Redis.At.Epoch
	}
	if step.Action == Load { // above every number that Redis or a caller knows: a MySQL that was rolled back hands numbers out again
		step.Epoch = 1 + max(l.MySQL.LoadAttempts, l.Redis.At.Epoch, l.Reported.Epoch)
		if t := l.Redis.Tombstone; t != nil {
			step.Epoch = max(step.Epoch, 1+t.Epoch)
		}
	}
	return step
}

func plan[T any](rows []row[T], observed *T, policy Policy) Step {
	for i := range rows {
		r := &rows[i]
		action := [...]Action{r.auto, r.repair, r.giveUp}[policy]
		if action != next && r.holds(observed) {
			return Step{Action: action, Row: r.name}
		}
	}
	return Step{Action: Refuse} // no table lets this happen: its last row always holds
}

var partitionRows = []row[Partition]{
	same("P1", "MySQL has no row of the stream, and Redis has no entries", BeginGeneration,
		func(p *Partition) bool { return !p.Known && p.Stream.Added == 0 && !p.IsMySQLBehind() }),
	same("P2", "MySQL lacks what Redis remembers, seen fewer than 4 times in a row", WaitReplica,
		func(p *Partition) bool { return p.IsMySQLBehind() && p.Rounds < roundsMax }),
	same("P3", "MySQL lacks what Redis remembers", StopPartition, (*Partition).IsMySQLBehind),
	same("P4", "the stream in Redis is behind MySQL's record, or another one", StopPartition, (*Partition).isRedisBehind),
	same("P5", "the stream, or the seqs without a row, moved, Redis does not remember the record, or it is older than 5 s", RecordStream,
		func(p *Partition) bool { return !p.isRecorded() }),
	same("P6", "else", None, always[Partition]),
}

func same[T any](name, when string, action Action, holds func(*T) bool) row[T] {
	return row[T]{name: name, when: when, holds: holds, auto: action, repair: action, giveUp: action}
}

func always[T any](*T) bool { return true }
