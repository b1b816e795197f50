package shards

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/models"
)

// run lets movers, users and faults take turns as t draws them, and returns what was broken.
func run(t *rapid.T, flaw flaw) error {
	w := newWorld(rapid.Int64Range(1, 24).Draw(t, "total"), rapid.IntRange(2, 4).Draw(t, "shards"))
	w.flaw = flaw
	return w.play(t)
}

func (w *world) play(t *rapid.T) error {
	defer w.crashAll()
	for range rapid.IntRange(10, 150).Draw(t, "turns") {
		if err := w.turn(t); err != nil {
			return err
		}
		if err := cmp.Or(w.broken(), w.real.differ(w)); err != nil {
			return err
		}
	}
	w.crashAll()
	return cmp.Or(w.sellOut(rapid.IntRange(0, len(w.lots)-2).Draw(t, "last")), w.real.differ(w))
}

func (w *world) crashAll() {
	for _, a := range w.actors {
		if !a.over {
			a.crash()
		}
	}
	w.actors = nil
}

// turn is what happens next.
func (w *world) turn(t *rapid.T) error {
	shard := rapid.IntRange(0, len(w.lots)-2).Draw(t, "shard")
	lot := rapid.IntRange(0, len(w.lots)-1).Draw(t, "lot")
	units := rapid.Int64Range(1, 6).Draw(t, "units")
	what := rapid.IntRange(0, 23).Draw(t, "what")
	switch {
	case what < 4:
		w.claim(shard, units)
	case what == 4 || what == 14:
		w.release(shard, units)
		if other := rapid.IntRange(0, len(w.lots)-1).Draw(t, "other"); other < len(w.lots)-1 { // someone takes as many elsewhere
			w.claim(other, units)
		}
	case what == 5:
		w.die(lot)
	case what == 6:
		w.evict(lot)
	case what == 7:
		w.lots[lot].isAway = !w.lots[lot].isAway
	case what == 8:
		w.book(lot)
	case what == 9 && rapid.Bool().Draw(t, "mysql"):
		w.save()
	case what == 10 && rapid.Bool().Draw(t, "mysql"):
		w.forget()
	case what == 15:
		w.notice(lot)
	case what == 16 && rapid.IntRange(0, 3).Draw(t, "all") == 0: // nothing is in Redis, and MySQL is restored
		for i := range w.lots {
			w.evict(i)
		}
		w.forget()
	case what < 13 && len(w.actors) < 3:
		need := models.Need{Shard: shard + 1, Units: units, Pace: rapid.Int64Range(0, 3).Draw(t, "pace"), Ahead: rapid.Bool().Draw(t, "ahead")}
		switch rapid.IntRange(0, 5).Draw(t, "need") {
		case 0:
			need = models.Need{Shard: models.ReserveLot, Units: units}
		case 1: // all that is free, which any unit that moves can hide
			need = models.Need{Shard: shard + 1, Units: max(1, w.total-w.taken())}
		}
		w.start(need)
	case len(w.actors) > 0:
		i := rapid.IntRange(0, len(w.actors)-1).Draw(t, "actor")
		a := w.actors[i]
		if what == 23 && rapid.IntRange(0, 3).Draw(t, "crash") == 0 {
			a.crash()
		} else {
			a.goOn()
		}
		if a.over {
			w.actors = append(w.actors[:i], w.actors[i+1:]...)
			return a.verdict()
		}
	}
	return nil
}

// verdict says whether what a mover said was true at a moment since it started.
func (a *actor) verdict() error {
	if from := a.refill.SoldOutFrom; !a.crashed && a.err == nil && from > 0 && (a.fewest >= from || a.need.Units < from) {
		return fmt.Errorf("a claim of %d is told sold out from %d units on, and %d or more were free all the time", a.need.Units, from, a.fewest)
	}
	return nil
}

// sellOut has users take all that is left, at one shard, with a mover that nothing disturbs.
func (w *world) sellOut(shard int) error {
	for i, s := range w.lots {
		s.isAway = false
		w.notice(i)
		if s.isLost || w.isBehindTombstone(i) { // for a person
			return nil
		}
	}
	left := w.total - w.taken()
	for _, units := range []int64{left, 1} {
		a := w.start(models.Need{Shard: shard + 1, Units: units})
		for !a.over {
			a.goOn()
		}
		w.actors = nil
		switch {
		case a.err != nil:
			return fmt.Errorf("%d units of %d are left: %w", left, w.total, a.err)
		case units == 0:
		case units == left && left > 0 && (a.refill.SoldOutFrom > 0 || !w.claim(shard, units)):
			return fmt.Errorf("%d units are left and can't be gathered", left)
		case units > w.total-w.taken() && a.refill.SoldOutFrom != 1 && left == 0:
			return fmt.Errorf("nothing is left, and sold out is said from %d on", a.refill.SoldOutFrom)
		}
		left = w.total - w.taken()
	}
	if err := w.broken(); err != nil {
		return err
	}
	if w.taken() != w.total {
		return fmt.Errorf("%d of %d units went", w.taken(), w.total)
	}
	return nil
}

// TestUnitsAreNeverLostNorDoubled: whoever goes next, and whoever dies where, no unit is given twice, none is lost, and sold out is told
// only if it was so.
func TestUnitsAreNeverLostNorDoubled(t *testing.T) {
	t.Parallel()
	for range 30 { // of a hundred
		rapid.Check(t, func(t *rapid.T) { require.NoError(t, run(t, flawNone)) })
	}
}

// TestTheModelCatches: each of these mistakes is found.
func TestTheModelCatches(t *testing.T) {
	t.Parallel()
	for name, flaw := range map[string]flaw{
		"a debit that is answered before it is kept": flawNotKept, "a credit that counts twice": flawCountsTwice,
		"sold out by one look": flawSoldOutAtAGlance, "a load without a tombstone": flawNoTombstone,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := error(nil)
			gen := rapid.Custom(func(t *rapid.T) string {
				if err := run(t, flaw); err != nil {
					return err.Error()
				}
				return ""
			})
			for seed := 0; seed < 20_000 && found == nil; seed++ {
				if text := gen.Example(seed); text != "" {
					found = fmt.Errorf("seed %d: %s", seed, text) //nolint:err113 // what was found
				}
			}
			require.Error(t, found, "the model does not notice it")
			t.Log(found)
		})
	}
}
