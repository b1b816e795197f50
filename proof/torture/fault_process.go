package torture

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The leases of Dibs: a process silent for longer is declared
// dead while it is not.
const (
	leaderLease   = 10 * time.Second // of the leading syncer
	takeoverAfter = 5 * time.Second  // until another consumer takes over unacknowledged entries
)

// processFaults are the faults of Dibs' own processes.
func processFaults() (all []*fault) {
	for _, kind := range []struct {
		name   string
		weight int
		lease  time.Duration
	}{{"api", 5, 3 * time.Second}, {"consumer", 5, takeoverAfter}, {"syncer", 3, leaderLease}, {"finance", 2, takeoverAfter},
		{"webhooks", 2, takeoverAfter}} {
		all = append(all,
			&fault{name: "kill " + kind.name, target: onPart, weight: kind.weight, lasts: span(20, 1500), inject: kill(kind.name)},
			&fault{name: "pause " + kind.name, target: onPart, weight: 1, lasts: [2]time.Duration{
				kind.lease + 500*time.Millisecond, kind.lease + 2*time.Second,
			}, inject: pause(kind.name)},
			&fault{name: "start " + kind.name, target: onPart, weight: 1, lasts: span(500, 3000), takes: time.Second, inject: startOne(kind.name)})
	}
	return append(all, &fault{name: "stop any", target: onPart, weight: 2, lasts: span(20, 500), inject: func(w *world, s *injection) error {
		p := pick(w.parts, s.who)
		s.what = p.name
		p.signal(syscall.SIGTERM)
		wait(w.ctx, s.lasts)
		return nil
	}})
}

// kill ends one of a kind, every third time all.
func kill(kind string) func(w *world, s *injection) error {
	return func(w *world, s *injection) error {
		struck := w.some(kind, s)
		for _, p := range struck {
			p.kill(s.lasts)
		}
		wait(w.ctx, s.lasts)
		return nil
	}
}

// pause stops one of a kind at any point, for longer than its lease.
func pause(kind string) func(w *world, s *injection) error {
	return func(w *world, s *injection) error {
		p := pick(w.of(kind), s.who)
		s.what = p.name
		p.signal(syscall.SIGSTOP)
		wait(w.ctx, s.lasts)
		p.signal(syscall.SIGCONT)
		return nil
	}
}

// startOne starts one more of a kind and stops it again. Without
// another fault, it must come up.
func startOne(kind string) func(w *world, s *injection) error {
	return func(w *world, s *injection) error {
		p := w.spare(kind)
		s.what = p.name
		if err := p.keep(); err != nil {
			return err
		}
		defer p.end(stopWithin)
		if s.alone {
			if err := p.awaitUp(w.ctx, healWithin/2); err != nil {
				return err
			}
		}
		wait(w.ctx, s.lasts)
		return nil
	}
}

// some picks one of a kind or, every third time, all.
func (w *world) some(kind string, s *injection) []*part {
	struck := w.of(kind)
	if s.n%3 != 0 {
		struck = []*part{pick(struck, s.who)}
	}
	var names []string
	for _, p := range struck {
		names = append(names, p.name)
	}
	s.what = strings.Join(names, " and ")
	return struck
}

// toxics are ways in which a connection is bad.
var toxics = []struct{ name, text string }{
	{"answers lost", `{"name": "t", "type": "limit_data", "stream": "downstream", "attributes": {"bytes": 0}}`},
	{"requests lost", `{"name": "t", "type": "limit_data", "stream": "upstream", "attributes": {"bytes": 0}}`},
	{"reset", `{"name": "t", "type": "reset_peer", "stream": "downstream", "attributes": {"timeout": 0}}`},
	{"silent", `{"name": "t", "type": "timeout", "stream": "downstream", "attributes": {"timeout": 0}}`},
	{"cut off in an answer", `{"name": "t", "type": "limit_data", "stream": "downstream", "attributes": {"bytes": 700}}`},
}

const slow = `{"name": "t", "type": "latency", "stream": "downstream", "attributes": {"latency": 300, "jitter": 250}}`

func wireFaults() []*fault {
	return []*fault{
		{name: "cut a wire", target: onWire, weight: 6, lasts: span(50, 2500), inject: func(w *world, s *injection) error {
			line := pick(w.wires(), s.who)
			s.what = line.name
			line.proxy.Stop()
			wait(w.ctx, s.lasts)
			return wrap(line.proxy.Start())
		}},
		{name: "spoil a wire", target: onWire, weight: 8, lasts: span(50, 2500), inject: func(w *world, s *injection) error {
			toxic := pick(toxics, int(s.n))
			return spoil(w, s, toxic.name, toxic.text, pick(w.wires(), s.who))
		}},
		{name: "slow wire", target: onWire, weight: 3, lasts: span(500, 3000), inject: func(w *world, s *injection) error {
			return spoil(w, s, "slow", slow, pick(w.wires(), s.who))
		}},
		{name: "sql is slow", target: onWire, weight: 2, lasts: span(500, 4000), inject: func(w *world, s *injection) error {
			return spoil(w, s, "slow", slow, slices.DeleteFunc(w.wires(), func(l wire) bool { return !strings.HasSuffix(l.name, toSQL) })...)
		}},
		{name: "cut all wires to sql", target: onWire, weight: 2, lasts: span(100, 3000), inject: func(w *world, s *injection) error {
			for _, p := range w.parts {
				p.toSQL.Stop()
			}
			wait(w.ctx, s.lasts)
			for _, p := range w.parts {
				if err := p.toSQL.Start(); err != nil {
					return wrap(err)
				}
			}
			return nil
		}},
	}
}

func spoil(w *world, s *injection, how, toxic string, lines ...wire) (err error) {
	if len(lines) == 1 {
		s.what = lines[0].name + ", " + how
	}
	for _, line := range lines {
		_, failed := line.proxy.Toxics.AddToxicJson(strings.NewReader(toxic))
		err = errors.Join(err, failed)
	}
	wait(w.ctx, s.lasts)
	for _, line := range lines {
		err = errors.Join(err, line.proxy.Toxics.RemoveToxic(w.ctx, "t"))
	}
	return wrap(err)
}

// wrap is for errors of the kit itself.
func wrap(err error) error {
	if err != nil {
		return fmt.Errorf("torture: %w", err)
	}
	return nil
}
