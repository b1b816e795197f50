// Package load sends claims at a constant rate, whatever the answers do (an open loop), and measures each from the moment it
// was due, so that a service that stalls cannot hide the wait of those who would have come meanwhile.
package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// ErrPlan is wrapped by refusals of a plan.
var ErrPlan = errors.New("load: plan")

// Limits of a plan.
const (
	RateMax        = 1_000_000
	ConnectionsMax = 10_000
	DurationMax    = 24 * time.Hour
)

// lateAfter is what a timer of a busy machine is off; beyond it a send is late.
const lateAfter = time.Millisecond

// shardsMax bounds the memory for counts: a histogram is some 200 kB.
const shardsMax = 16

// Plan is one run at one rate.
type Plan struct {
	Rate        float64       // sends a second
	WarmUp      time.Duration // sends at the same rate before, counted apart
	Duration    time.Duration
	Connections int           // sends under way at the same time
	Grace       time.Duration // after the schedule's end; what was not sent by then never is. 0 is 5 s
	Progress    func(answered int64)
}

// WithDefaults returns a copy with what is 0 filled in.
func (p Plan) WithDefaults() Plan {
	if p.Grace == 0 {
		p.Grace = 5 * time.Second
	}
	if p.Progress == nil {
		p.Progress = func(int64) {}
	}
	return p
}

// Validate refuses what cannot be run. The error wraps ErrPlan and names the field.
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

// Total is the number of sends, those of the warm-up included.
func (p *Plan) Total() int64 { return p.warm() + int64(p.Rate*p.Duration.Seconds()) }

func (p *Plan) warm() int64 { return int64(p.Rate * p.WarmUp.Seconds()) }

// due is when send n is due, after the start.
func (p *Plan) due(n int64) time.Duration {
	return time.Duration(float64(n) / p.Rate * float64(time.Second))
}

// Answer is what became of one send.
type Answer struct {
	Code    string // of a refusal or a fault; "" is accepted
	Fault   bool   // no refusal for a reason of the campaign's: no answer, an error of the service
	Unknown bool   // it may have been accepted all the same
}

// Send makes send n and waits for its answer. Many run at the same time.
type Send func(ctx context.Context, n int64) Answer

// Result is a run: the warm-up and what was measured.
type Result struct {
	Warm, Measured Counts
}

// Run sends a plan. It ends early, with ctx's error, when ctx does.
func Run(ctx context.Context, p Plan, send Send) (Result, error) {
	p = p.WithDefaults()
	if err := p.Validate(); err != nil {
		return Result{}, err
	}
	r := &run{plan: p, send: send, start: time.Now(), shards: make([]shard, min(p.Connections, shardsMax))}
	r.giveUp = r.start.Add(p.WarmUp + p.Duration + p.Grace)
	for i := range r.shards {
		r.shards[i].warm, r.shards[i].measured = newCounts(), newCounts()
	}
	var wg sync.WaitGroup
	for i := range p.Connections {
		wg.Go(func() { r.work(ctx, &r.shards[i%len(r.shards)]) })
	}
	wg.Wait()
	return r.result(), ctx.Err()
}

// run is a plan under way. Whoever is free takes the next send, and waits until it is due.
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

func sleepUntil(ctx context.Context, due time.Time) bool {
	wait := time.Until(due)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
