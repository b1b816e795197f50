package lua

import (
	"context"
	"fmt"
	"strings"
	"time"

	"dibs/internal/sleep"
)

const (
	// paceFree is how many records are staged
	// without a pause: some 50 ms of Redis.
	paceFree = 25_000
	// minPace is the least rate, in records a second: about a tenth of Redis.
	minPace = 80_000
	// paceWhole bounds the staging of a campaign. A bigger one is
	// staged faster than minPace, at the cost of the others.
	paceWhole = 20 * time.Second
	// paceLook is the pause between two checks for other scripts.
	paceLook = 200 * time.Millisecond
	// paceOthers is the rate of scripts a second that slows staging.
	// Below it hardly any claim coincides with a load.
	paceOthers = 100
	// paceSleep is the shortest pause. Timers are no finer.
	paceSleep = time.Millisecond
	// paceCatchUp bounds what is staged at once after a late wake-up.
	paceCatchUp = 250 * time.Millisecond
)

// pace bounds the rate of staging while others run scripts on the
// server, so that a load leaves time for other claims. Else staging is
// as fast as Redis, as the lot is away for that long. The reader of
// MySQL waits for the staging, and so is slowed as well.
type pace struct {
	calls func(ctx context.Context) (int64, error) // of scripts on the campaign's server, ever
	rate  float64                                  // records a second

	staged    int64
	busy      bool
	lookedAt  time.Time
	callsThen int64
	next      time.Time // when to send the next records
}

// newPace returns the pace of a campaign of
// about records records. key is one of its keys.
func (s *Scripts) newPace(ctx context.Context, key string, records int64) *pace {
	p := &pace{
		calls: func(ctx context.Context) (int64, error) { return s.scriptCalls(ctx, key) },
		rate:  rateFor(records),
	}
	if records >= paceFree { // a check costs Redis as much as some claims
		p.check(ctx, time.Now())
	}
	return p
}

func rateFor(records int64) float64 { return max(minPace, float64(records)/paceWhole.Seconds()) }

func (p *pace) commands() int {
	if p.busy && p.staged >= paceFree {
		return stageCommandsPaced
	}
	return stageCommands
}

func (p *pace) after(ctx context.Context, records int) error {
	p.staged += int64(records)
	if p.staged < paceFree {
		return nil
	}
	now := time.Now()
	if now.Sub(p.lookedAt) >= paceLook || p.next.IsZero() {
		p.check(ctx, now)
		now = time.Now()
	}
	if earliest := now.Add(-paceCatchUp); !p.busy || p.next.Before(earliest) {
		p.next = earliest
	}
	if !p.busy {
		return nil
	}
	p.next = p.next.Add(time.Duration(float64(records) / p.rate * float64(time.Second)))
	wait := p.next.Sub(now)
	if wait < paceSleep {
		return nil
	}
	if sleep.For(ctx, wait) != nil {
		return classifyError("stage", ctx.Err())
	}
	return nil
}

// check checks whether others run scripts. It
// assumes so if the server does not answer.
func (p *pace) check(ctx context.Context, now time.Time) {
	calls, err := p.calls(ctx)
	since := now.Sub(p.lookedAt).Seconds()
	p.busy = err != nil || !p.lookedAt.IsZero() && float64(calls-p.callsThen) > paceOthers*since
	p.lookedAt = now
	p.callsThen = calls
}

func (s *Scripts) scriptCalls(ctx context.Context, key string) (int64, error) {
	node, err := s.nodeOf(ctx, key)
	if err != nil {
		return 0, classifyError("info", err)
	}
	stats, err := node.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, classifyError("info", err)
	}
	all := int64(0)
	for line := range strings.Lines(stats) { // no line if it ran none
		var calls int64
		name, values, _ := strings.Cut(line, ":")
		if name == "cmdstat_evalsha" || name == "cmdstat_eval" {
			_, _ = fmt.Sscanf(values, "calls=%d", &calls)
		}
		all += calls
	}
	return all, nil
}
