package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"dibs/lua"
)

const (
	faultsARound = 40
	lossyOneIn   = 3 // rounds
	brokenMax    = 20
)

// round is a set of faults for its own campaigns, and the check after them.
type round struct {
	w         *world
	n         int
	started   time.Time // the run
	report    *Report
	plan      *plan
	covered   pairs // by what happened so far
	gauge     *gauge
	struck    int         // faults so far
	campaigns []*campaign // used by clients throughout
	lossy     bool
	losses    []loss
	lied      bool      // Redis' clock was or is wrong in this round
	vanished  bool      // mode mysql: claims that Redis accepted and lost, without a reply
	undoing   bool      // MySQL was or is being restored in this round
	open      time.Time // when its clients started

	// read-locked during an operator's action; actions wait until
	// all is up after a loss
	operating sync.RWMutex

	mu sync.Mutex // guards losses, lied, undoing and the report's Broken
}

// loss is a time span in which answered claims may have been
// lost; till zero: not over.
type loss struct{ from, till time.Time }

// Claims may be lost from before a fault and its neighbours, if they were not
// in MySQL yet, until Dibs notices the loss. After concurrent faults possibly
// no process can notice it before all are up.
const (
	lossBefore = 20 * time.Second
	lossAfter  = 2 * time.Second
)

// rand is a random source for one purpose, the same at each run
// of this round.
func (rd *round) rand(stream uint64) *rand.Rand { return chance(rd.w.opt.Seed, rd.n, stream) }

func chance(seed uint64, round int, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(round)<<16|stream)) //nolint:gosec // chance that can be repeated, no secret
}

func (rd *round) brokenf(format string, args ...any) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	line := fmt.Sprintf("round %d: ", rd.n) + fmt.Sprintf(format, args...)
	if len(rd.report.Broken) < brokenMax {
		rd.report.Broken = append(rd.report.Broken, line)
		rd.w.opt.Progress("BROKEN " + line)
	}
}

func (rd *round) isBroken() bool {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	return len(rd.report.Broken) > 0
}

// A round's random streams.
const (
	chanceOfPlan     = 0
	chanceOfOperator = 1
	chanceOfLast     = 10
	chanceOfClients  = 100
	chanceOfPauses   = 0x8000
)

func (rd *round) run(ctx context.Context) (err error) {
	rd.lossy = rd.plan.lossy
	rd.w.evict(slices.ContainsFunc(rd.plan.casts, func(c cast) bool { return slices.Contains(c.features, withEviction) }))
	o := &operator{caller: newCaller(), w: rd.w, r: rd.rand(chanceOfOperator)}
	defer o.close()
	rd.campaigns, err = o.open(ctx, fmt.Sprintf("s%d-r%d", rd.w.opt.Seed, rd.n), rd.plan.casts)
	if err != nil {
		return err
	}
	rd.w.inForce, err = o.lots(ctx, rd.campaigns)
	if err != nil {
		return err
	}
	for _, c := range rd.plan.casts {
		rd.w.opt.Progress(fmt.Sprintf("          round %-3d %s: %s, %s", rd.n, c.name, strings.Join(c.features, ", "), c.claims))
	}
	rd.open = time.Now()
	rd.report.Rounds++
	if rd.lossy {
		rd.report.Lossy++
	}
	var took strings.Builder
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"injected", func() error { return rd.injectFaults(ctx, o) }},
		{"healed", func() error { return errors.Join(rd.heal(ctx), rd.giveUp(ctx)) }},
		{"sold out", func() error { return rd.settle(ctx) }},
		{"drained", func() error { return rd.drain(ctx, o) }},
		{"checked", func() error { return rd.check(ctx) }},
	} {
		started := time.Now()
		if err := step.do(); err != nil || rd.isBroken() {
			return err
		}
		fmt.Fprintf(&took, ", %s in %.1fs", step.name, time.Since(started).Seconds())
	}
	for _, c := range rd.campaigns {
		rd.covered.addFeatures(c.had(time.Time{}))
	}
	maps.Copy(rd.report.covered, rd.covered)
	done := len(rd.report.Faults)
	since := time.Since(rd.started)
	rd.w.opt.Progress(fmt.Sprintf("round %d of %d campaigns%s: %d faults in %s, %.1f a minute", rd.n, len(rd.campaigns), took.String(), done,
		since.Round(time.Second), float64(done)/since.Minutes()))
	return nil
}

// injectFaults runs the faults while clients, the operator and a
// reader are active.
func (rd *round) injectFaults(ctx context.Context, o *operator) (err error) {
	if len(rd.plan.scenarios) == 0 {
		return fmt.Errorf("%w: every fault that is left may lose claims", ErrOptions)
	}
	busy, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for n := range clients {
		c := rd.newClient(fmt.Sprintf("client-%d", n), chanceOfClients+uint64(n))
		wg.Go(func() { c.run(busy) })
	}
	var operating error
	wg.Go(func() { operating = o.run(busy, rd.campaigns) })
	wg.Go(func() { rd.readBooks(busy) })
	rd.gauge.reset(rd.rushing())
	rd.awaitAnswers(ctx) // they are in Redis then
	rd.operate(busy, &wg)
	for i, b := range rd.plan.scenarios {
		if err != nil || ctx.Err() != nil || rd.isBroken() {
			break
		}
		err = rd.inject(ctx, b, i)
	}
	for _, c := range rd.campaigns {
		c.still.Store(0)
	}
	if err == nil && !rd.isBroken() {
		rd.awaitAnswers(ctx)
	}
	stop()
	wg.Wait()
	return errors.Join(err, operating)
}

// backWithin limits a campaign's time without a certain reply once all faults
// are over, with claims going on and no intervention.
const backWithin = 15 * time.Second

// awaitAnswers waits until each campaign gets a certain reply. One lost by
// Redis is reloaded while claims are released and expire.
func (rd *round) awaitAnswers(ctx context.Context) {
	over := time.Now()
	for {
		quiet := rd.gauge.quietSince(over)
		if len(quiet) == 0 || ctx.Err() != nil {
			return
		}
		if time.Since(over) > backWithin {
			rd.brokenf("no certain answer within %s without a fault, while claims and releases go on: %v", backWithin, quiet)
			return
		}
		wait(ctx, 20*time.Millisecond)
	}
}

// rushing returns the campaigns with so many claims that a reply
// is due at any time.
func (rd *round) rushing() []*campaign {
	return slices.DeleteFunc(slices.Clone(rd.campaigns), func(c *campaign) bool { return c.claims != rush || c.closing.Load() })
}

// excused reports whether a claim answered then may be lost.
func (rd *round) excused(answered time.Time) bool {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if rd.w.opt.Durability == lua.MySQL && !rd.undoing { // MySQL has what Redis loses
		return false
	}
	return slices.ContainsFunc(rd.losses, func(l loss) bool {
		return !answered.Before(l.from) && (l.till.IsZero() || !answered.After(l.till))
	})
}

// undone reports whether MySQL's redeems, releases and changes may be lost.
func (rd *round) undone() bool {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	return rd.undoing
}
