package recovery

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// play lets processes, operators and faults take turns as a seed draws them, and then has everything recover.
func play(seed uint64, f flaw) (*world, error) {
	w := newWorld(f)
	w.rng = rand.New(rand.NewPCG(seed, 0))
	defer w.killAll()
	hasFaults, hasOperators := w.draw(4) > 0, w.draw(3) > 0
	lots, eager := 1+w.draw(lotCount-1), w.draw(3) // few lots and eager runs meet more often
	w.saveMySQL()
	w.saveRedis()
	for range 20 + w.draw(230) {
		w.turns++
		w.turn(lots, eager, hasFaults, hasOperators)
		if w.wrong != nil {
			return w, w.wrong
		}
		if w.faults == 0 && !hasOperators {
			if err := w.isCalm(); err != nil {
				return w, err
			}
		}
	}
	return w, w.recover()
}

func (w *world) killAll() {
	for _, a := range w.actors {
		if !a.isOver {
			a.kill()
		}
	}
	w.actors = nil
}

func (w *world) turn(lots, eager int, hasFaults, hasOperators bool) {
	lot := w.draw(lots - 1)
	what := w.draw(39)
	if len(w.actors) > 1 && w.draw(3) < eager {
		what = 39
	}
	switch {
	case what < 7:
		api := w.draw(1)
		if reported, asks := w.claim(api, lot, w.draw(9) == 0); asks && len(w.actors) < 3 {
			w.start(actor{lot: lot, reported: reported})
		}
	case what < 10:
		w.deliver()
	case what < 13:
		w.flush(w.draw(8))
	case what < 15 && len(w.actors) < 3:
		w.start(actor{lot: lot, watches: true})
	case what == 15 && len(w.actors) < 3:
		w.start(actor{lot: lot, evicts: true})
	case what == 16 && len(w.actors) < 3 && hasOperators:
		w.start(actor{lot: lot, policy: Policy(1 + w.draw(1)), differs: w.draw(1) == 0})
	case what == 17 && hasFaults:
		w.fault(lot)
	case what == 18 && hasFaults:
		w.seen[w.draw(1)] = [lotCount]lua.Position{} // it is killed, and another starts
	case what == 19:
		w.saveMySQL()
	case what == 20:
		w.saveRedis()
	case len(w.actors) > 0:
		i := w.draw(len(w.actors) - 1)
		a := w.actors[i]
		if w.draw(40) == 0 {
			a.kill()
		} else {
			a.goOn()
		}
		if a.isOver {
			w.actors = append(w.actors[:i], w.actors[i+1:]...)
		}
	}
}

func (w *world) fault(lot int) {
	switch w.draw(5) {
	case 0, 1:
		w.restoreMySQL(len(w.mysqlPast) - 1 - min(len(w.mysqlPast)-1, w.draw(3)))
	case 2, 3:
		w.restoreRedis(len(w.redisPast) - 1 - min(len(w.redisPast)-1, w.draw(3)))
	case 4:
		w.flushAll()
	case 5:
		w.deleteKey(lot, w.draw(2))
	}
}

// isCalm says what is wrong where nothing ever failed.
func (w *world) isCalm() error {
	for i := range w.mysql.lots {
		m, r := &w.mysql.lots[i], &w.redis.lots[i]
		if m.residency == models.ResidencyLost || r.status == models.StatusFenced {
			return fmt.Errorf("%w: lot %d is stopped, and nothing failed", errTable, i)
		}
		if r.status == models.StatusOpen && (m.residency != models.ResidencyResident || m.epoch != r.epoch) {
			return fmt.Errorf("%w: lot %d takes claims that mysql does not know of", errTable, i)
		}
	}
	return nil
}

// recover has the consumers catch up, and then every lot be opened, first without being asked to and then by an operator who gives up
// what is missing. Nothing fails any more.
func (w *world) recover() error {
	w.killAll()
	w.turns += 2 * loaderFor
	for range lotCount {
		for i := range lotCount {
			for _, p := range policies {
				if err := w.finish(actor{lot: i, policy: p, watches: p == Auto}); err != nil {
					return err
				}
			}
		}
	}
	w.drain()
	for i := range w.mysql.lots {
		if err := w.agrees(i); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) drain() {
	for was := -1; w.redis.acked > was; {
		was = w.redis.acked
		for n := -1; len(w.delivered) > n; w.deliver() {
			n = len(w.delivered)
		}
		w.flush(0)
	}
}

// finish runs a run to its end.
func (w *world) finish(a actor) error {
	run := w.start(a)
	defer w.killAll()
	for !run.isOver {
		w.turns++
		w.drain()
		run.goOn()
		switch {
		case w.wrong != nil:
			return w.wrong
		case run.steps > 2*stepsMax:
			return fmt.Errorf("%w: %s does not end: %v", errTable, a.policy, run.last)
		}
	}
	if a.policy == GiveUp && run.last.Action != None {
		return fmt.Errorf("%w: %s ends with %v", errTable, a.policy, run.last)
	}
	return nil
}

// agrees says where MySQL and Redis differ of a lot that is open, with all rows written.
func (w *world) agrees(i int) error {
	m, r := &w.mysql.lots[i], &w.redis.lots[i]
	rows := m.rows
	for seq, id := range counting(m) {
		rows = with(rows, seq, id)
	}
	if r.status != models.StatusOpen || m.epoch != r.epoch || r.seq != m.synced+len(counting(m)) || !maps.Equal(rows, r.records) {
		return fmt.Errorf("%w: lot %d differs: mysql %+v, redis %+v", errTable, i, *m, *r)
	}
	return nil
}

// draw draws a number from 0 to most.
func (w *world) draw(most int) int { return w.rng.IntN(most + 1) }

// TestModel_ARunBesideOthersOpensNothingThatLacksClaims: whoever goes next, whoever is killed where, and whichever server is restored to an
// earlier time.
func TestModel_ARunBesideOthersOpensNothingThatLacksClaims(t *testing.T) {
	t.Parallel()
	seeds := uint64(1000)
	if testenv.Soak() {
		seeds = 20_000
	}
	for seed := range seeds {
		w, err := play(seed, flawless)
		require.NoError(t, err, "seed %d:\n%s", seed, strings.Join(w.trace, "\n"))
	}
}

// TestModel_FindsEachMistake: what carries a step out, or observes, with one mistake.
func TestModel_FindsEachMistake(t *testing.T) {
	t.Parallel()
	for _, f := range flaws {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(3000) {
				if _, err := play(seed, f); err != nil {
					t.Logf("seed %d: %.120s", seed, err)
					return
				}
			}
			require.Fail(t, "no schedule shows it")
		})
	}
}
