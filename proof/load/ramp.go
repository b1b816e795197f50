package load

import (
	"context"
	"fmt"
	"time"
)

// Ramp searches for the highest rate within a limit on p99.
type Ramp struct {
	From float64       // per second, the first rate; doubled while it holds
	To   float64       // highest rate
	P99  time.Duration // limit
}

// precision ends a search: the lowest failed rate is within this
// share of the highest held one.
const precision = 0.1

// stepsMax limits a search: twenty doublings and as many
// halvings, some tried twice.
const stepsMax = 64

// Shares of a step that may fail before it counts as not held.
const (
	achievedShare = 0.98
	lateShare     = 0.01
)

// rounding allows for the error of dividing and multiplying by one number.
const rounding = 1 + 1e-9

// Step is one tried rate.
type Step struct {
	Rate    float64 `json:"rate"`
	Reached float64 `json:"achieved"`
	P99MS   float64 `json:"p99_ms"`
	Held    bool    `json:"held"`
	Reason  string  `json:"reason,omitempty"` // why it did not hold
}

// Measure runs one rate for a time.
type Measure func(ctx context.Context, rate float64) (Counts, error)

// Find returns the highest rate that held, 0 if none did, and the tried rates
// in order. A failed rate is tried once more, because one hiccup of a busy
// machine is no limit. The result must hold again after all higher rates
// failed, because one lucky measurement is no top rate. Find stops at a
// sixty-fourth of the first rate.
func (r Ramp) Find(ctx context.Context, measure Measure) (float64, []Step, error) {
	var steps []Step
	try := func(rate float64) (held bool, err error) {
		for again := 0; again < 2 && !held; again++ {
			counts, err := measure(ctx, rate)
			if err != nil {
				return false, err
			}
			s := r.judge(rate, &counts)
			steps = append(steps, s)
			held = s.Held
		}
		return held, nil
	}
	first := min(r.From, r.To)
	held := 0.0
	failed := 0.0
	drop := 1.0
	for rate := first; rate >= first/LowestPart && len(steps) < stepsMax; rate = r.next(held, failed, drop) {
		ok, err := try(rate)
		if err != nil {
			return 0, steps, err
		}
		if ok {
			held = rate
		} else {
			failed = rate
			drop = min(2*drop, 1)
		}
		if !r.isPrecise(held, failed) {
			continue
		}
		ok, err = try(held)
		if ok || err != nil {
			return held, steps, err
		}
		failed = held
		held = 0
		drop = precision
	}
	return 0, steps, nil
}

// LowestPart divides the first rate to give the lowest one tried. A step of
// the first rate needs at least as many sends, or the lowest rate has none.
const LowestPart = 64

// isPrecise reports whether the search is over: Ramp.To holds,
// or held and failed are close enough.
func (r Ramp) isPrecise(held, failed float64) bool {
	if held == 0 {
		return false
	}
	return failed == 0 && held >= r.To || failed > 0 && failed <= held*(1+precision)*rounding
}

// next doubles the rate until one failed, then halves the gap.
// While no rate holds it decreases, in growing steps.
func (r Ramp) next(held, failed, drop float64) float64 {
	switch {
	case failed == 0:
		return min(2*held, r.To)
	case held == 0:
		return failed / (1 + drop)
	default:
		return (held + failed) / 2
	}
}

func (r Ramp) judge(rate float64, c *Counts) Step {
	p99 := c.At(99)
	s := Step{Rate: rate, Reached: c.Rate(), P99MS: ms(p99)}
	switch {
	case c.Faulty() > 0:
		s.Reason = fmt.Sprintf("%d faults", c.Faulty())
	case c.Unsent > 0:
		s.Reason = fmt.Sprintf("%d never sent", c.Unsent)
	case float64(c.Late) > lateShare*float64(c.Sent) && p99 >= r.P99:
		s.Reason = fmt.Sprintf("p99, and the generator itself was late %d times", c.Late)
	case p99 >= r.P99:
		s.Reason = "p99"
	case float64(c.Sent)+1 < achievedShare*rate*c.Took.Seconds():
		s.Reason = "rate not reached"
	default:
		s.Held = true
	}
	return s
}

// ms converts a duration to milliseconds, for JSON.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
