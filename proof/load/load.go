// Package load sends claims at a constant rate, however slow the answers are
// (an open loop). It measures each latency from the time the claim was due,
// so that a stalled service can't hide the wait of later claims.
package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"dibs/internal/sleep"
)

// ErrPlan is wrapped by refusals of a plan.
var ErrPlan = errors.New("load: plan")

// Limits of a plan.
const (
	RateMax        = 1_000_000
	ConnectionsMax = 10_000
	DurationMax    = 24 * time.Hour
)

// lateAfter is a timer's inaccuracy on a busy machine. Sends
// later than that count as late.
const lateAfter = time.Millisecond

// shardsMax limits the counts' memory: a histogram takes some 200 kB.
const shardsMax = 16

// Plan is one run at one rate.
type Plan struct {
	Rate        float64       // sends per second
	WarmUp      time.Duration // before Duration, at the same rate, counted separately
	Duration    time.Duration
	Connections int           // concurrent sends
	Grace       time.Duration // how long after the schedule's end late sends are still made; 0: 5 s
	Progress    func(answered int64)
}

// WithDefaults returns a copy with zero fields filled in.
func (p Plan) WithDefaults() Plan {
	if p.Grace == 0 {
		p.Grace = 5 * time.Second
	}
	if p.Progress == nil {
		p.Progress = func(int64) {}
	}
	return p
}

// Validate returns nil, or ErrPlan wrapped with the name of the field.
func (p *Plan) Validate() error {
	switch {
	case math.IsNaN(p.Rate) || p.Rate <= 0 || p.Rate > RateMax:
		return fmt.Errorf("%w: rate must be above 0 and at most %d a second, not %g", ErrPlan, RateMax, p.Rate)
	case p.Duration <= 0 || p.Duration > DurationMax:
		return fmt.Errorf("%w: duration must be above 0 and at most %s, not %s", ErrPlan, DurationMax, p.Duration)
	case p.WarmUp < 0 || p.WarmUp > DurationMax:
		return fmt.Errorf("%w: warm-up must be 0 to %s, not %s", ErrPlan, DurationMax, p.WarmUp)
	case p.Connections < 1 || p.Connections > ConnectionsMax:
		return fmt.Errorf("%w: connections must be 1 to %d, not %d", ErrPlan, ConnectionsMax, p.Connections)
	case p.Rate*(p.WarmUp+p.Duration).Seconds() < 1:
		return fmt.Errorf("%w: rate of %g a second does not send once in %s", ErrPlan, p.Rate, p.WarmUp+p.Duration)
	}
	return nil
}

// Total returns the number of sends, including the warm-up.
func (p *Plan) Total() int64 { return p.warm() + int64(p.Rate*p.Duration.Seconds()) }

func (p *Plan) warm() int64 { return int64(p.Rate * p.WarmUp.Seconds()) }

// due is send n's time after the start.
func (p *Plan) due(n int64) time.Duration {
	return time.Duration(float64(n) / p.Rate * float64(time.Second))
}

// Answer is the answer to one send.
type Answer struct {
	Code    string // of a refusal or a fault; "": accepted
	Fault   bool   // no answer, or an error of the service rather than the campaign's refusal
	Unknown bool   // the claim may still have been accepted
}

// Send makes send n and waits for its answer. It runs concurrently.
type Send func(ctx context.Context, n int64) Answer

// Result is a run: the warm-up and the measurement.
type Result struct {
	Warm, Measured Counts
}

// Run sends a plan. If ctx ends, it stops and returns ctx's error.
func Run(ctx context.Context, p Plan, send Send) (Result, error) {
	p = p.WithDefaults()
	if err := p.Validate(); err != nil {
		return Result{}, err
	}
	r := &run{plan: p, send: send, start: time.Now(), shards: make([]shard, min(p.Connections, shardsMax))}
	r.giveUp = r.start.Add(p.WarmUp + p.Duration + p.Grace)
	for i := range r.shards {
		r.shards[i].warm = newCounts()
		r.shards[i].measured = newCounts()
	}
	var wg sync.WaitGroup
	for i := range p.Connections {
		wg.Go(func() { r.work(ctx, &r.shards[i%len(r.shards)]) })
	}
	wg.Wait()
	return r.result(), ctx.Err()
}

// run is a plan being sent. A free worker takes the next send,
// and waits until it is due.
type run struct {
	plan   Plan
	send   Send
	start  time.Time
	giveUp time.Time
	next   atomic.Int64
	done   atomic.Int64
	shards []shard
}

type shard struct {
	mu             sync.Mutex
	warm, measured Counts
}

func (r *run) work(ctx context.Context, s *shard) {
	for ctx.Err() == nil {
		n := r.next.Add(1) - 1
		if n >= r.plan.Total() {
			return
		}
		due := r.start.Add(r.plan.due(n))
		free := time.Now()
		if free.After(r.giveUp) {
			s.count(n < r.plan.warm(), func(c *Counts) { c.unsent(free.Sub(due)) })
			continue
		}
		if !sleepUntil(ctx, due) {
			return
		}
		behind := time.Since(due)
		answer := r.send(ctx, n)
		end := time.Now()
		s.count(n < r.plan.warm(), func(c *Counts) {
			c.behind(behind, free.After(due))
			c.answer(answer, end.Sub(due), end)
		})
		r.plan.Progress(r.done.Add(1))
	}
}

func (s *shard) count(warm bool, change func(*Counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if warm {
		change(&s.warm)
	} else {
		change(&s.measured)
	}
}

func (r *run) result() Result {
	res := Result{Warm: newCounts(), Measured: newCounts()}
	for i := range r.shards {
		res.Warm.Merge(&r.shards[i].warm)
		res.Measured.Merge(&r.shards[i].measured)
	}
	res.Warm.Took = max(res.Warm.last.Sub(r.start), 0)
	res.Measured.Took = max(res.Measured.last.Sub(r.start.Add(r.plan.due(r.plan.warm()))), r.plan.Duration)
	return res
}

// sleepUntil waits until due; false if ctx ends first.
func sleepUntil(ctx context.Context, due time.Time) bool {
	if wait := time.Until(due); wait > 0 {
		return sleep.For(ctx, wait) == nil
	}
	return ctx.Err() == nil
}
