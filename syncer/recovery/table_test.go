package recovery

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/lua"
)

// stepsMax bounds a run without faults.
const stepsMax = 20

var policies = []Policy{Auto, Repair, GiveUp}

// explored is what following a table from some views came to.
type explored struct {
	rows    []row[Lot]
	ends    map[viewUnder]outcome
	onPath  map[viewUnder]bool
	counts  map[string]int // observations by row
	moves   map[move]bool  // between states
	longest int
}

type viewUnder struct {
	view   view
	policy Policy
}

// outcome is what a run without faults may come to, once what it waits for has come.
type outcome struct {
	mayOpen, alwaysOpens bool // by some choice of effects, by every one, at some time
	steps                int  // of the longest chain
}

func explore(rows []row[Lot]) *explored {
	return &explored{
		rows: rows, ends: make(map[viewUnder]outcome), onPath: make(map[viewUnder]bool), counts: make(map[string]int), moves: make(map[move]bool),
	}
}

var errTable = errors.New("the table is wrong")

func wrong(v *view, p Policy, step Step, what string) error {
	return fmt.Errorf("%w: %s: %s %s at %+v", errTable, what, p, step.Row+" "+string(step.Action), *v)
}

// follow takes all steps from a view on, and returns where they end.
func (x *explored) follow(v view, p Policy) (outcome, error) {
	at := viewUnder{v, p}
	if end, known := x.ends[at]; known {
		return end, nil
	}
	l := v.lot()
	step := planLot(x.rows, l, p)
	x.counts[step.Row]++
	if err := checkStep(&v, l, p, step); err != nil {
		return outcome{}, err
	}
	if x.onPath[at] {
		return outcome{}, wrong(&v, p, step, "a cycle")
	}
	end := outcome{mayOpen: v.isOpen(), alwaysOpens: v.isOpen()}
	if step.Action != None && step.Action != Refuse {
		x.onPath[at] = true
		defer delete(x.onPath, at)
		end.alwaysOpens = true
		for _, w := range v.after(step.Action) {
			x.moves[move{v.lot().state(), w.lot().state(), step.Action}] = true
			if w == v {
				return end, wrong(&v, p, step, "a step without an effect")
			}
			then, err := x.follow(w, p)
			if err != nil {
				return end, err
			}
			end.mayOpen = end.mayOpen || then.mayOpen
			end.alwaysOpens = end.alwaysOpens && (v.isOpen() || then.alwaysOpens)
			end.steps = max(end.steps, then.steps+1)
		}
	}
	x.ends[at] = end
	x.longest = max(x.longest, end.steps)
	return end, nil
}

// checkStep says what is wrong with a step.
func checkStep(v *view, l *Lot, p Policy, step Step) error {
	isSound := v.residency == resident && (v.held == open || v.held == loading) && v.epoch == epochSame && !v.isBehind && !v.isOtherStream
	fail := func(what string) error { return wrong(v, p, step, what) }
	isForgotten := v.reported == laterLoad || v.reported == laterLoadNo
	mayRepair := p != Auto || v.residency == lost && v.isRolledBack && l.Redis.Held == Present
	isSearched := v.isStreamRead && (v.areRecordsRead || l.Redis.Held != Present)
	if isStarted := step.Action != ObserveAgain && step.Action != RecordSeen && step.Action != Fence; isStarted && (v.reported == moreClaims || v.reported == laterLoad) {
		return fail("leaves out what a caller saw")
	}
	switch step.Action {
	case CountRows, RestoreParked, RestoreStream, RestoreRecords, RenumberDisplaced, CorrectCounters:
		if !mayRepair {
			return fail("repairs unasked")
		}
	}
	switch step.Action {
	case GiveUpClaims, GiveUpUnrecorded, GiveUpParked:
		switch {
		case p != GiveUp:
			return fail("gives up what no one asked it to give up")
		case v.residency != lost:
			return fail("gives up claims of a lot that may take others")
		case v.rows == uncounted, step.Action == GiveUpClaims && !isSearched:
			return fail("gives up claims before it searches for them")
		}
	case Evict:
		if p != Auto {
			return fail("evicts what an operator repairs")
		}
	case MarkLost:
		switch {
		case v.isTaking(), v.residency == resident && v.held == loading:
			return fail("is lost while it takes claims, or may be opened")
		case isSound && !isForgotten:
			return fail("a sound lot is lost")
		case v.residency == resident && v.tombstone == exact && !v.isOtherStream && v.reported == unreported:
			return fail("an evicted lot is lost")
		}
	case Fence:
		switch {
		case !v.isTaking() && (v.residency != resident || v.held != loading):
			return fail("fences what takes no claims")
		case v.held == open && (v.epoch == epochNewer || v.epoch == epochBeyond) && !v.isBefore:
			return fail("fences a load that was confirmed after MySQL was read")
		case isSound && p == Auto && !isForgotten && v.reported != moreClaims:
			return fail("fences a sound lot")
		case isSound && p == Repair && v.isMissing && v.isSettled && v.reported == unreported && v.definition != definitionAhead:
			return fail("closes a lot whose claims it may not give up")
		case isSound && p == Repair && v.parked != displaced && !v.differs && v.reported == unreported && v.definition != definitionAhead:
			return fail("fences a sound lot for nothing")
		}
	case RecordEviction:
		if v.tombstone != exact || v.isOtherStream {
			return fail("an eviction without its tombstone")
		}
	case Load, Confirm:
		return checkLoad(v, l, p, step)
	case CorrectCounters:
		switch {
		case v.isMissing && (v.isSettled || v.residency == lost):
			return fail("frees the units of missing claims")
		case !isSearched && (v.residency == lost || v.residency == resident):
			return fail("corrects counters before it searches for claims")
		}
	case Refuse:
		isStuck := v.isMissing || v.isBlind || v.parked == unwritable
		switch {
		case p == GiveUp:
			return fail("refuses what an operator gives up")
		case isSound && p == Auto:
			return fail("refuses a sound lot")
		case p == Repair && !isStuck:
			return fail("refuses what it may repair")
		case p == Repair && v.isMissing && !v.isBlind && v.parked != unwritable && !isSearched:
			return fail("refuses before it searches for claims")
		}
	case None:
		switch {
		case !v.isOpen():
			return fail("leaves a lot that takes no claims")
		case v.definition == definitionOld || v.definition == unapplied || v.definition == packetsMissing:
			return fail("leaves a change undone")
		case p == Auto && v.isIdle:
			return fail("does not evict")
		case isForgotten:
			return fail("leaves a lot of which MySQL forgot a load")
		case p != Auto && (v.rows != agree || v.parked != noneParked || v.isMissing && v.isSettled || v.differs || v.definition == definitionAhead):
			return fail("leaves what an operator asked to repair")
		}
	}
	if step.Row == "" {
		return fail("no row")
	}
	return nil
}

// checkLoad says what is wrong with a step that leads to an open lot.
func checkLoad(v *view, l *Lot, p Policy, step Step) error {
	fail := func(what string) error { return wrong(v, p, step, what) }
	isProven := !v.isOtherStream || p != Auto || v.isRolledBack && l.Redis.Held == Present
	switch {
	case v.residency == resident:
		return fail("loads a resident lot")
	case v.isTaking():
		return fail("loads over a lot that takes claims")
	case v.isMissing, v.rows == contradict:
		return fail("opens without claims")
	case v.isBlind:
		return fail("opens over a loss that nothing recorded")
	case v.residency == lost && (!v.hasTip || !v.isAcknowledged):
		return fail("opens before the consumers are done")
	case v.residency == lost && !isProven:
		return fail("opens what nothing proves")
	case v.residency != lost && (v.held == fenced || v.held == damagedFenced || v.tombstone == claimsAhead || v.tombstone == loadAhead):
		return fail("loads what Redis remembers more of")
	case v.residency != lost && (v.reported == laterLoad || v.reported == laterLoadNo):
		return fail("loads what MySQL forgot")
	case v.residency == lost && p != Auto && v.rows == uncounted:
		return fail("loads before the rows are counted")
	case v.residency == lost && p != Auto && !v.isStreamRead:
		return fail("loads before the stream is searched")
	case v.residency == lost && (v.parked == displaced || v.parked == unwritable):
		return fail("frees the units of parked claims")
	case v.residency == lost && p != Auto && v.parked == toRestore:
		return fail("leaves parked claims that may be written")
	case v.isLoading:
		return fail("loads beside another loader")
	case step.Action == Confirm && v.copied != matching:
		return fail("confirms a copy of something else")
	case step.Action == Load && step.Epoch <= max(l.MySQL.Epoch, l.MySQL.LoadAttempts, l.Redis.At.Epoch, l.Reported.Epoch),
		step.Action == Load && l.Redis.Tombstone != nil && step.Epoch <= l.Redis.Tombstone.Epoch:
		return fail("a number that was used")
	}
	return nil
}

// check follows a table from one of every so many views, by all policies.
func (x *explored) check(every int) (observations int, err error) {
	if step := planLot(x.rows, &Lot{}, Auto); step.Action != Refuse {
		return 0, fmt.Errorf("%w: %s for a lot that MySQL does not have", errTable, step.Action)
	}
	i := 0
	for v := range views() {
		if i++; i%every != 0 {
			continue
		}
		observations++
		var ends [3]outcome
		for _, p := range policies {
			if ends[p], err = x.follow(v, p); err != nil {
				return observations, err
			}
		}
		if v.isOpen() {
			continue // an operator may close what auto leaves open
		}
		for _, p := range policies[1:] {
			if ends[p-1].mayOpen && !ends[p].mayOpen || ends[p-1].alwaysOpens && !ends[p].alwaysOpens {
				return observations, fmt.Errorf("%w: %s is stricter than %s at %+v", errTable, p, p-1, v)
			}
		}
		if !ends[GiveUp].mayOpen {
			return observations, fmt.Errorf("%w: %s ends closed at %+v", errTable, GiveUp, v)
		}
	}
	return observations, nil
}

// TestTable_EveryObservationHasItsStep follows the table from every kind of observation, by every policy, through every effect that a step
// may have. It decides on each, ends, gives nothing up unasked, and opens nothing that it should not open.
func TestTable_EveryObservationHasItsStep(t *testing.T) {
	t.Parallel()
	x := explore(lotRows)
	n, err := x.check(1)
	require.NoError(t, err)
	require.LessOrEqual(t, x.longest, stepsMax)
	x.counts[PlanLot(&Lot{}, Auto).Row]++ // no view is of a lot that MySQL does not have
	for i := range lotRows {
		require.Positive(t, x.counts[lotRows[i].name], lotRows[i].name)
	}
	text := fmt.Sprintf("%d kinds of observations, followed by each policy through %d in all. The longest chain has %d steps.\n\n",
		n, len(x.ends), x.longest)
	requireDoc(t, "recovery.md", "lots", text+table(lotRows, x.counts, true))
	requireDoc(t, "recovery.md", "waits", waits())
	requireDoc(t, "architecture.md", "states of a lot", diagram(x.moves))
}

// TestTable_WaitsSayWhatTheyWaitFor: each wait names what must change, and who changes it.
func TestTable_WaitsSayWhatTheyWaitFor(t *testing.T) {
	t.Parallel()
	for i := range lotRows {
		for _, a := range []Action{lotRows[i].auto, lotRows[i].repair, lotRows[i].giveUp} {
			if strings.HasPrefix(string(a), "wait") {
				require.NotEmpty(t, Waits[a].For, a)
				require.NotEmpty(t, Waits[a].By, a)
			}
		}
	}
	for i := range partitionRows {
		if a := partitionRows[i].auto; strings.HasPrefix(string(a), "wait") {
			require.NotEmpty(t, Waits[a].For, a)
		}
	}
}

// TestTable_ALotThatMySQLDoesNotHaveIsRefused by any policy.
func TestTable_ALotThatMySQLDoesNotHaveIsRefused(t *testing.T) {
	t.Parallel()
	for _, p := range policies {
		require.Equal(t, Step{Action: Refuse, Row: "L1"}, PlanLot(&Lot{}, p))
		require.Equal(t, Step{Action: Refuse, Row: "L1"}, PlanLot(&Lot{Found: true, OtherLayout: true, Reported: lua.Position{Epoch: 1}}, p))
	}
}

// partitions enumerates every kind of observation of a partition.
func partitions(yield func(*Partition)) {
	tip := func(ms uint64) lua.StreamPosition {
		return lua.StreamPosition{Generation: "stream 1", Tip: lua.EntryID{Ms: ms}, Added: int64(ms)}
	}
	known := tip(5)
	other, fewer, gap := tip(5), tip(5), tip(5)
	other.Generation = "stream 2"
	fewer.Added = 4
	gap.Gap = lua.EntryID{Ms: 4}
	for _, stream := range []lua.StreamPosition{known, tip(4), tip(6), {}, other, fewer, gap} {
		for _, remembered := range []uint64{0, 5, 6} {
			for lacking := range 2 {
				for rounds := 1; rounds <= roundsMax; rounds++ {
					for flags := range 16 {
						p := &Partition{
							Known: flags&1 == 0, Watching: flags&2 == 0, UnbookedMoved: flags&4 == 0, Recorded: known, Stream: stream, Lacking: lacking,
							Rounds: rounds, Remembered: lua.EntryID{Ms: remembered},
						}
						if !p.Known {
							p.Recorded = lua.StreamPosition{}
						}
						if flags&8 == 0 {
							p.RecordedAge = 2 * recordedAgeMax
						}
						yield(p)
					}
				}
			}
		}
	}
}

// TestTable_APartitionIsStoppedWhenAServerForgot what it had, and only then.
func TestTable_APartitionIsStoppedWhenAServerForgot(t *testing.T) {
	t.Parallel()
	counts := make(map[string]int)
	partitions(func(p *Partition) {
		step := PlanPartition(p)
		counts[step.Row]++
		IsMySQLBehind := p.Lacking > 0 || p.Remembered.Ms > 5 || !p.Known && (p.Remembered.Ms > 0 || p.Stream.Added > 0)
		isRedisBehind := p.Stream.Generation != "stream 1" || p.Stream.Tip.Ms < 5 || p.Stream.Added < 5 || p.Stream.Gap.Ms > 0
		isMoved := p.Stream.Tip.Ms > 5 || p.Remembered.Ms < 5 || p.UnbookedMoved || p.RecordedAge > recordedAgeMax
		var want Action
		switch {
		case !p.Known && !IsMySQLBehind:
			want = BeginGeneration
		case IsMySQLBehind && p.Rounds < roundsMax:
			want = WaitReplica
		case IsMySQLBehind, isRedisBehind:
			want = StopPartition
		case isMoved && p.Watching:
			want = RecordStream
		default:
			want = None
		}
		if step.Action != want {
			require.NoError(t, fmt.Errorf("%w: %s in place of %s at %+v", errTable, step.Action, want, p))
		}
	})
	for i := range partitionRows {
		require.Positive(t, counts[partitionRows[i].name])
	}
	requireDoc(t, "recovery.md", "partitions", table(partitionRows, counts, false))
}

// TestTable_ALoadThatWasJustConfirmedIsNotFenced: MySQL was read before the load was confirmed, and Redis after it was opened. Only a
// load that was open before MySQL was read is one that MySQL forgot.
func TestTable_ALoadThatWasJustConfirmedIsNotFenced(t *testing.T) {
	t.Parallel()
	v := view{residency: evicted, held: open, epoch: epochNewer}
	l := v.lot()
	require.Equal(t, ObserveAgain, PlanLot(l, Auto).Action)
	l.Before = Before{Epoch: l.Redis.At.Epoch}
	require.Equal(t, ObserveAgain, PlanLot(l, Auto).Action, "it was being made")
	l.Before.IsTaking = true
	require.Equal(t, Fence, PlanLot(l, Auto).Action)
}
