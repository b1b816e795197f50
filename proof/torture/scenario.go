package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"dibs/lua"
)

// A scenario is what happens between two recoveries: mostly one fault alone,
// whose cost is measured. Otherwise concurrent faults of several targets
// (process, wire, Redis, SQL server), in sequence for each target.
type scenario struct {
	lanes   [][]*injection // a lane is one target's faults
	started time.Time
}

const (
	togetherOneIn = 3               // scenarios
	scenarioLasts = 4 * time.Second // of one with several targets, about; longer if its first fault is
	minPause      = 100             // milliseconds between two faults of a lane
	maxPause      = 500
)

// planScenario draws a scenario, given the number of faults drawn
// and left in the round.
func (p *planner) planScenario(r *rand.Rand, of *plan, struck, left int) *scenario {
	with := of.featuresAt(struck)
	may := func(f *fault) bool { return of.lossy || !f.lossy(p.opt) }
	firstMay := may
	if of.lossy && r.IntN(2) == 0 { // these are few among many
		firstMay = func(f *fault) bool { return f.lossy(p.opt) }
	}
	first := p.draw(r, with, firstMay)
	if first == nil {
		return nil
	}
	var targets []string
	for _, f := range p.chosen {
		if !slices.Contains(targets, f.target) {
			targets = append(targets, f.target)
		}
	}
	first.alone = r.IntN(togetherOneIn) > 0 || len(targets) == 1
	if first.alone {
		return &scenario{lanes: [][]*injection{{first}}}
	}
	b := &scenario{}
	left--
	until := max(scenarioLasts, first.length())
	for _, target := range targets {
		lane := []*injection(nil)
		length := time.Duration(0)
		if target == first.target {
			lane = []*injection{first}
			length = first.length()
		}
		for ; left > 0; left-- {
			s := p.draw(r, with, func(f *fault) bool { return may(f) && f.target == target && length+f.lasts[0]+f.takes < until })
			if s == nil {
				break
			}
			lane = append(lane, s)
			length += s.length()
		}
		b.lanes = append(b.lanes, lane)
	}
	return b
}

func (s *injection) length() time.Duration { return s.lasts + s.takes + ms((minPause+maxPause)/2) }

func (b *scenario) length() (most time.Duration) {
	for _, lane := range b.lanes {
		sum := time.Duration(0)
		for _, s := range lane {
			sum += s.length()
		}
		most = max(most, sum)
	}
	return most
}

// lossy reports whether one of its faults may lose answered claims.
func (b *scenario) lossy(o *Options) bool {
	return slices.ContainsFunc(slices.Concat(b.lanes...), func(s *injection) bool { return s.lossy(o) })
}

func (rd *round) inject(ctx context.Context, b *scenario, i int) error {
	for _, c := range rd.campaigns {
		c.closing.Store(c.closing.Load() || c.has(withArchive) && rd.struck >= closeAfter)
		c.still.Store(int64(1 + i%c.shards))
	}
	rd.gauge.reset(rd.rushing())
	b.started = time.Now()
	errs := make([]error, len(b.lanes))
	var wg sync.WaitGroup
	for n, lane := range b.lanes {
		pauses := rd.rand(chanceOfPauses + uint64(i*len(b.lanes)+n))
		wg.Go(func() { errs[n] = rd.happenAll(ctx, b, lane, pauses) })
	}
	wg.Wait()
	err := errors.Join(append(errs, rd.w.Try(rd.w.startSQL))...) //nolint:makezero // a full disk may end it after there is space again
	over := time.Now()
	rd.waitForRecovery(ctx, over)
	if b.lossy(rd.w.opt) && err == nil {
		wait(ctx, lossAfter-time.Since(over))
		rd.operating.Lock()
		err = rd.heal(ctx)
		rd.operating.Unlock()
		rd.closeLosses(0)
		rd.awaitAnswers(ctx)
	}
	rd.reportFaults(b)
	return err
}

func (rd *round) happenAll(ctx context.Context, b *scenario, lane []*injection, pauses *rand.Rand) error {
	for i, s := range lane {
		if i > 0 {
			wait(ctx, ms(between(pauses, minPause, maxPause)))
		}
		if ctx.Err() != nil || rd.isBroken() {
			return nil //nolint:nilerr // whoever ended the context says why
		}
		if err := rd.happen(b, s); err != nil {
			return err
		}
	}
	return nil
}

// happen runs one fault and records the time span in which it
// may have lost claims.
func (rd *round) happen(b *scenario, s *injection) error {
	rd.mu.Lock()
	rd.undoing = rd.undoing || s.undoes
	rd.lied = rd.lied || s.lies
	rd.vanished = rd.vanished || s.loses != nil && rd.w.opt.Durability == lua.MySQL
	if s.lossy(rd.w.opt) {
		rd.losses = append(rd.losses, loss{from: b.started.Add(-lossBefore)})
	}
	rd.mu.Unlock()
	s.started = time.Now()
	err := s.inject(rd.w, s)
	s.took = time.Since(s.started)
	if s.alone {
		rd.closeLosses(lossAfter)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	return nil
}

// closeLosses ends a scenario's losses after a delay: for a single fault once
// it is over, for several once all processes are up.
func (rd *round) closeLosses(later time.Duration) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	for i := range rd.losses {
		if l := &rd.losses[i]; l.till.IsZero() {
			l.till = time.Now().Add(later)
		}
	}
}

// maxRecoveryWait limits the wait after a scenario.
const maxRecoveryWait = 900 * time.Millisecond

// waitForRecovery waits until each campaign got a certain reply since then.
func (rd *round) waitForRecovery(ctx context.Context, since time.Time) {
	for wait(ctx, 50*time.Millisecond); len(rd.gauge.quietSince(since)) > 0 && time.Since(since) < maxRecoveryWait && ctx.Err() == nil; {
		wait(ctx, 10*time.Millisecond)
	}
}

func (rd *round) reportFaults(b *scenario) {
	cost := rd.gauge.cost()
	all := slices.Concat(b.lanes...)
	all = slices.DeleteFunc(all, func(s *injection) bool { return s.started.IsZero() })
	slices.SortFunc(all, func(s, t *injection) int { return s.started.Compare(t.started) })
	for i, s := range all {
		struck := FaultRecord{
			AtMs: s.started.Sub(rd.started).Milliseconds(), Round: rd.n, Name: s.name, What: s.what, TookMs: s.took.Milliseconds(), Cost: cost,
		}
		if !s.alone {
			struck.Beside = s.beside(all)
		}
		rd.report.Faults = append(rd.report.Faults, struck)
		if i+1 < len(all) {
			rd.w.opt.Progress(struck.head())
		} else {
			rd.w.opt.Progress(struck.String())
		}
	}
	rd.struck += len(all)
	rd.cover(b)
}

// beside names the concurrent faults; if there were none, the
// scenario's others.
func (s *injection) beside(all []*injection) (names []string) {
	var others []string
	for _, other := range all {
		if other == s {
			continue
		}
		others = append(others, other.name)
		if other.started.Before(s.started.Add(s.took)) && s.started.Before(other.started.Add(other.took)) {
			names = append(names, other.name)
		}
	}
	if len(names) == 0 {
		names = others
	}
	return names
}
