package torture

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// fault is something that goes wrong, and is put right again.
type fault struct {
	name   string
	target string           // what it acts on; two faults at once act on different targets
	weight int              // how often it comes up
	lasts  [2]time.Duration // least and most
	takes  time.Duration    // to be over, beside what it lasts, about
	// loses reports whether claims that were answered may be lost by it; nil:
	// none may.
	loses func(*Options) bool
	// cannot says why this machine or topology can't do it; "" and nil: it can.
	cannot func(*world) string
	// inject does it and undoes it. Processes that it killed are started again
	// later.
	inject func(w *world, s *injection) error
	// lies says that the time of claims may be wrong: it is Redis' own.
	lies bool
	// undoes says that it loses more than claims: also what was redeemed,
	// released or changed.
	undoes bool
}

// injection is one time that a fault happens.
type injection struct {
	*fault

	who     int // picks one of several
	n       int64
	lasts   time.Duration
	alone   bool   // nothing else happens at the same time
	what    string // what was struck, filled in by strike
	started time.Time
	took    time.Duration
}

func (s *injection) String() string {
	if s.what == "" {
		return s.name
	}
	return s.name + ": " + s.what
}

// The targets of faults.
const (
	onPart  = "process"
	onWire  = "wire"
	onRedis = "redis"
	onSQL   = "sql"
)

// faults are all that there are.
func faults() []*fault {
	return slices.Concat(processFaults(), wireFaults(), redisFaults(), snapshotFaults(), failoverFaults(), sqlFaults(), diskFaults(),
		clockFaults())
}

// choose lists the faults of this run, and why others are not among them.
func (w *world) choose() (chosen []*fault, skipped []string, err error) {
	known := map[string]bool{}
	for _, f := range faults() {
		known[f.name] = true
		if len(w.opt.Only) > 0 && !slices.Contains(w.opt.Only, f.name) {
			continue
		}
		if f.cannot != nil {
			if why := f.cannot(w); why != "" {
				skipped = append(skipped, f.name+": "+why)
				continue
			}
		}
		chosen = append(chosen, f)
	}
	for _, name := range w.opt.Only {
		if !known[name] {
			return nil, nil, fmt.Errorf("%w: no fault %q; there are %v", ErrOptions, name, Names())
		}
	}
	if len(chosen) == 0 {
		return nil, skipped, fmt.Errorf("%w: no fault is left: %v", ErrOptions, skipped)
	}
	return chosen, skipped, nil
}

// Names lists the faults that there are.
func Names() (names []string) {
	for _, f := range faults() {
		names = append(names, f.name)
	}
	return names
}

// draw picks a fault by weight, of those that may happen.
func draw(r *rand.Rand, from []*fault, may func(*fault) bool) *injection {
	sum := 0
	for _, f := range from {
		if may(f) {
			sum += f.weight
		}
	}
	if sum == 0 {
		return nil
	}
	n := r.IntN(sum)
	for _, f := range from {
		if !may(f) {
			continue
		}
		n -= f.weight
		if n < 0 {
			u := r.Float64() // mostly short, at times as long as can be
			lasts := f.lasts[0] + time.Duration(u*u*float64(f.lasts[1]-f.lasts[0]))
			return &injection{fault: f, who: r.IntN(1000), n: between(r, 1, 100), lasts: lasts}
		}
	}
	return nil
}

// trying injects a fault by calls of the kit, which end the round if they fail.
func trying(do func(w *world, s *injection)) func(w *world, s *injection) error {
	return func(w *world, s *injection) error { return w.Try(func() { do(w, s) }) }
}

// lasting injects a fault that begins, lasts for its time and ends.
func lasting(begin, end func(w *world)) func(w *world, s *injection) error {
	return trying(func(w *world, s *injection) {
		begin(w)
		wait(w.ctx, s.lasts)
		end(w)
	})
}

// only has a fault happen in one topology of Redis; otherwise says why it can't
// happen in the others.
func only(topology, otherwise string) func(w *world) string {
	return func(w *world) string {
		if w.opt.Topology == topology {
			return ""
		}
		return otherwise
	}
}

// lossy reports whether a fault may lose answered claims under these options.
func (f *fault) lossy(o *Options) bool { return f.loses != nil && f.loses(o) }

func always(*Options) bool { return true }

func pick[T any](from []T, n int) T { return from[n%len(from)] }

func span(least, most int64) [2]time.Duration { return [2]time.Duration{ms(least), ms(most)} }

// How long a server runs on after the copy was made that it is restored from.
var (
	nearRollback = [2]time.Duration{50 * time.Millisecond, 5 * time.Second}
	farRollback  = [2]time.Duration{5 * time.Second, time.Minute}
)
