package shards

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// atEachPoint has a mover serve a need in a new world, and events happen after each number of its steps, one after the other. What the
// mover says must have been true, and all units must be sold in the end, once.
func atEachPoint(t *testing.T, start func() *world, need models.Need, events ...func(w *world)) {
	t.Helper()
	points := make([]int, len(events))
	for run := 0; ; run++ {
		w := start()
		a := w.start(need)
		steps := 0
		inTime := 0 // events that came before the mover was done
		for i, event := range events {
			for ; steps < points[i] && !a.over; steps++ {
				a.goOn()
			}
			if !a.over {
				inTime = i + 1
			}
			event(w)
		}
		for !a.over {
			a.goOn()
		}
		w.actors = nil
		require.NoError(t, cmp.Or(a.verdict(), w.broken(), w.sellOut(0)), "events after %v steps", points)
		if inTime == 0 {
			require.Positive(t, run)
			return
		}
		// The last event that was in time comes a step later, and those behind it no sooner.
		points[inTime-1]++
		for i := inTime; i < len(points); i++ {
			points[i] = points[inTime-1]
		}
	}
}

// debit has a lot debit units for another. That is not on its disk.
func (w *world) debit(from, to int, units int64) int64 {
	s := w.lots[from]
	peer := w.lots[to].number
	told, err := s.debit(&lua.Debit{Epoch: s.memory.epoch, Peer: peer, Seen: s.memory.out[peer], Units: units})
	if err != nil {
		panic(err)
	}
	return told.Upto
}

func (w *world) credit(to, from int, upto int64) {
	s := w.lots[to]
	_, err := s.credit(&lua.Credit{Seen: lua.Position{Epoch: s.memory.epoch}, Peer: w.lots[from].number, PeerLoad: w.lots[from].memory.epoch, Upto: upto}, flawNone)
	if err != nil {
		panic(err)
	}
	w.keep(s)
}

// allBut is a world of 12 units in two shards: users hold 9 of one, and 3 are free in the other. The reserve has none.
func allBut(free int) func() *world {
	return func() *world {
		w := newWorld(12, 2)
		w.credit(1-free, 2, w.debit(2, 1-free, 6))
		w.keep(w.lots[2])
		w.claim(1-free, 9)
		return w
	}
}

// A claim takes units of the giver between the look and the debit: only what the giver says is credited.
func TestPoints_AClaimAtTheGiver(t *testing.T) {
	t.Parallel()
	atEachPoint(t, func() *world { return newWorld(8, 2) }, models.Need{Shard: 1, Units: 7}, func(w *world) { w.claim(1, 2) })
}

// The giver dies, has its units again, and a user takes them: no one was credited those that it forgot.
func TestPoints_AGiverThatForgetsADebit(t *testing.T) {
	t.Parallel()
	atEachPoint(t, func() *world { return newWorld(8, 2) }, models.Need{Shard: 1, Units: 7}, func(w *world) {
		w.die(1)
		w.claim(1, w.lots[1].memory.free())
	})
}

// A mover dies after each step, and units are in flight: the next one ends that.
func TestPoints_AMoverThatDies(t *testing.T) {
	t.Parallel()
	atEachPoint(t, func() *world { return newWorld(8, 2) }, models.Need{Shard: 1, Units: 6}, func(w *world) {
		for _, a := range w.actors {
			if !a.over {
				a.crash()
			}
		}
	})
}

// In one lot units become free, and as many are taken in another: of two reads the second tells.
func TestPoints_UnitsBecomeFreeWhileOthersAreTaken(t *testing.T) {
	t.Parallel()
	atEachPoint(t, allBut(1), models.Need{Shard: 1, Units: 4}, func(w *world) {
		w.release(0, 3)
		w.claim(1, 3)
	})
}

// Units that were debited and not credited are free to no one, and not sold.
func TestPoints_UnitsInFlightAreNotSold(t *testing.T) {
	t.Parallel()
	atEachPoint(t, allBut(1), models.Need{Shard: 1, Units: 4}, func(w *world) {
		w.debit(1, 2, 3)
		w.keep(w.lots[1])
	})
}

// A server dies between the two reads, and comes to the same counts in another way.
func TestPoints_TheSameCountsOnAnotherRun(t *testing.T) {
	t.Parallel()
	atEachPoint(t, allBut(0), models.Need{Shard: 2, Units: 4}, func(w *world) { w.debit(0, 2, 3) }, func(w *world) {
		w.die(0)
		upto := w.debit(0, 1, 2)
		w.keep(w.lots[0])
		w.credit(1, 0, upto)
		w.claim(1, 2)
	})
}
