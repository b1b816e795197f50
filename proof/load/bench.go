package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dibs/client"
)

// Bench is a whole run: the search for a rate if there is a
// ramp, the measured run, and the comparison with Dibs' data.
type Bench struct {
	Target   *Target
	Stock    int64 // units
	Plan     Plan  // with a Ramp, its rate is found
	Ramp     *Ramp
	Step     time.Duration // duration of one rate of the ramp
	Hold     float64       // rate of the measured run, as a share of the ramp's top rate
	SyncWait time.Duration // limit of the wait for MySQL after the last reply
	// StartPhase is called at the start of a phase, with its name
	// and number of sends. It returns functions to call after each
	// answer and at the phase's end. It may be nil.
	StartPhase func(name string, sends int64) (progress func(answered int64), done func())
}

const (
	lagPoll   = 50 * time.Millisecond
	syncPoll  = 5 * time.Millisecond
	closeWait = 5 * time.Second
	// pauseBetween limits the wait for MySQL between two rates of a
	// ramp, so that no rate pays for another.
	pauseBetween = 30 * time.Second
)

// totals are the answers of all runs against the campaign.
type totals struct{ sent, accepted, unknown int64 }

// Run runs the Bench. The report is complete only without an error.
func (b *Bench) Run(ctx context.Context) (report Report, err error) {
	if err := b.Target.Open(ctx, b.Plan.Connections, b.Stock); err != nil {
		return Report{}, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
		defer cancel()
		err = errors.Join(err, b.Target.Close(closing))
	}()
	var all totals
	report = b.newReport()
	if b.Ramp != nil {
		report.Ramp, err = b.search(ctx, &all)
		if err != nil {
			return report, err
		}
		b.Plan.Rate = report.Ramp.TopRate * b.Hold
		report.Plan.Rate = b.Plan.Rate
		if report.Ramp.TopRate == 0 {
			report.Books, err = b.books(ctx, &all)
			return report, err
		}
	}
	watching, stop := context.WithCancel(ctx)
	lag := make(chan Lag, 1)
	go func() { lag <- Watch(watching, lagPoll, b.Target.Stock) }()
	result, err := b.measure(ctx, "claims answered", b.Plan, &all)
	stop()
	report.Sync = <-lag
	if err != nil {
		return report, err
	}
	report.fill(&result.Measured)
	report.Books, err = b.books(ctx, &all)
	return report, err
}

func (b *Bench) search(ctx context.Context, all *totals) (*RampReport, error) {
	top, steps, err := b.Ramp.Find(ctx, func(ctx context.Context, rate float64) (Counts, error) {
		plan := b.Plan
		plan.Rate = rate
		plan.Duration = b.Step
		plan.WarmUp = b.Step / 4
		plan.Grace = time.Second
		result, err := b.measure(ctx, fmt.Sprintf("trying %.0f a second", rate), plan, all)
		if err == nil {
			_, _, err = b.awaitSync(ctx, pauseBetween)
		}
		return result.Measured, err
	})
	return &RampReport{P99LimitMS: ms(b.Ramp.P99), TopRate: top, Hold: b.Hold, Steps: steps}, err
}

func (b *Bench) measure(ctx context.Context, what string, plan Plan, all *totals) (Result, error) {
	if b.StartPhase != nil {
		progress, done := b.StartPhase(what, plan.Total())
		defer done()
		plan.Progress = progress
	}
	from := all.sent
	result, err := Run(ctx, plan, func(ctx context.Context, n int64) Answer { return b.Target.Claim(ctx, from, n) })
	if err != nil {
		return result, err
	}
	for _, c := range []*Counts{&result.Warm, &result.Measured} {
		all.sent += c.Sent + c.Unsent
		all.accepted += c.Accepted
		all.unknown += c.Unknown
	}
	return result, nil
}

// awaitSync polls until MySQL has every claim, for at most wait.
func (b *Bench) awaitSync(ctx context.Context, wait time.Duration) (client.Stock, time.Duration, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var last client.Stock
	for {
		s, err := b.Target.Stock(ctx)
		if err == nil {
			last = s
			if s.Backlog == 0 && s.Synced >= s.Claimed {
				return s, time.Since(start), nil
			}
		}
		if !sleepUntil(ctx, time.Now().Add(syncPoll)) {
			if last.CampaignID == "" {
				return last, time.Since(start), err
			}
			return last, time.Since(start), nil
		}
	}
}

func (b *Bench) books(ctx context.Context, all *totals) (Books, error) {
	stock, took, err := b.awaitSync(ctx, b.SyncWait)
	if err != nil {
		return Books{}, err
	}
	return compare(b.Stock, all, &stock, took), ctx.Err()
}
