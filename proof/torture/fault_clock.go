package torture

import (
	"slices"
	"time"
)

// clockOff is the error of Redis' clock.
const clockOff = 2 * time.Hour

// clockFaults make Redis' wall clock jump, and jump back. Go
// programs read the clock without the C library, so Dibs' own
// clocks can't be changed this way.
func clockFaults() []*fault {
	return []*fault{{
		name: "clock of redis is off", target: onRedis, weight: 3, lasts: span(300, 4000), lies: true,
		cannot: func(w *world) string {
			if w.noClock != nil {
				return w.noClock.Error()
			}
			if w.clock == nil {
				return "the nodes have no clock of their own"
			}
			return ""
		},
		inject: func(w *world, s *injection) error {
			off := clockOff
			if s.n%2 == 0 {
				off = -off
			}
			s.what = "by " + off.String()
			return w.Try(func() {
				w.clock.Set(off)
				wait(w.ctx, s.lasts)
				w.clock.Set(0)
			})
		},
	}}
}

// retime, if the clock was wrong, replaces each claim's time by the latest
// possible one: when a client learned of it, or of one with a higher seq.
// Units returned by then count as returned before. An end in the future is
// set to its claim's time, as no end precedes its claim.
func (rd *round) retime(l *ledger) {
	if !rd.lied {
		return
	}
	learned := map[string]time.Time{}
	for _, one := range l.requests {
		for i := range one.tries {
			t := &one.tries[i]
			if t.claim == nil {
				continue
			}
			if first, known := learned[t.claim.ID]; !known || t.ended.Before(first) {
				learned[t.claim.ID] = t.ended
			}
		}
	}
	now := time.Now()
	for i := range slices.Backward(l.rows) {
		r := &l.rows[i]
		r.at = now
		if first, known := learned[r.ID]; known {
			r.at = first
		}
		if i+1 < len(l.rows) && l.rows[i+1].Shard == r.Shard && l.rows[i+1].at.Before(r.at) {
			r.at = l.rows[i+1].at
		}
		if r.resolved.After(now) {
			r.resolved = r.at
		}
	}
}
