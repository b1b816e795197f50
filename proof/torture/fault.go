package torture

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// fault is something that goes wrong, and is undone.
type fault struct {
	name   string
	target string           // concurrent faults have different targets
	weight int              // how often it is drawn
	lasts  [2]time.Duration // least and most
	takes  time.Duration    // approximate extra time until it is over
	// loses reports whether it may lose answered claims; nil: never.
	loses func(*Options) bool
	// cannot says why this machine or topology can't do it; "" and
	// nil: it can.
	cannot func(*world) string
	// inject does it and undoes it. Processes that it killed are
	// restarted later.
	inject func(w *world, s *injection) error
	// lies: the time of claims, which is Redis' own, may be wrong.
	lies bool
	// undoes: it may also lose redeems, releases and changes.
	undoes bool
}

type injection struct {
	*fault

	who     int // picks one of several
	n       int64
	lasts   time.Duration
	alone   bool   // nothing else happens at the same time
	what    string // the affected part, set by inject
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

func faults() []*fault {
	return slices.Concat(processFaults(), wireFaults(), redisFaults(), snapshotFaults(), failoverFaults(), sqlFaults(), diskFaults(),
		clockFaults())
}

// choose lists this run's faults, and why others are left out.
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

// Names lists all faults.
func Names() (names []string) {
	for _, f := range faults() {
		names = append(names, f.name)
	}
	return names
}

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
			u := r.Float64() // mostly short, sometimes the full length
			lasts := f.lasts[0] + time.Duration(u*u*float64(f.lasts[1]-f.lasts[0]))
			return &injection{fault: f, who: r.IntN(1000), n: between(r, 1, 100), lasts: lasts}
		}
	}
	return nil
}

// trying injects a fault by calls of the kit, which end the
// round if they fail.
func trying(do func(w *world, s *injection)) func(w *world, s *injection) error {
	return func(w *world, s *injection) error { return w.Try(func() { do(w, s) }) }
}

// lasting injects a fault that starts, lasts for its time and ends.
func lasting(begin, end func(w *world)) func(w *world, s *injection) error {
	return trying(func(w *world, s *injection) {
		begin(w)
		wait(w.ctx, s.lasts)
		end(w)
	})
}

// only allows a fault in one topology of Redis; otherwise is the
// reason for others.
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

// How far back a server is rolled.
var (
	nearRollback = [2]time.Duration{50 * time.Millisecond, 5 * time.Second}
	farRollback  = [2]time.Duration{5 * time.Second, time.Minute}
)
