package lab

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// crowd is a worker's claimers under one load.
type crowd struct {
	opening  opening
	strategy Strategy
	load     load

	start time.Time
	next  atomic.Int64

	mu  sync.Mutex
	all claimer
	cut bool
}

// claimer is what one of them was told.
type claimer struct {
	outcomes [outcomes]int64
	inTime   int64
	failed   int64
	failure  error
	had      map[string]int64
	latency  *hdrhistogram.Histogram
}

func newClaimer() claimer { return claimer{had: make(map[string]int64), latency: newHistogram()} }

func newCrowd(o opening, s Strategy, l load) *crowd {
	return &crowd{opening: o, strategy: s, load: l, all: newClaimer()}
}

// run has all of them claim, and returns when the last has its answer.
func (c *crowd) run(ctx context.Context) (done, error) {
	c.start = time.Now()
	var wg sync.WaitGroup
	for range c.opening.Claimers {
		wg.Go(func() { c.add(c.claims(ctx)) })
	}
	wg.Wait()
	took := time.Since(c.start)
	latency, err := c.all.latency.EncodeV2()
	if err != nil {
		return done{}, fmt.Errorf("lab: latencies: %w", err)
	}
	d := done{
		Outcomes: make(map[string]int64), InTime: c.all.inTime, Failed: c.all.failed, Cut: c.cut, Took: took, Latency: latency,
	}
	for o := Claimed; o < outcomes; o++ {
		d.Outcomes[o.String()] = c.all.outcomes[o]
	}
	if c.all.failure != nil {
		d.Failure = c.all.failure.Error()
	}
	if c.load.Present {
		d.Had = c.all.had
	}
	return d, nil
}

// claims is what one claimer does.
func (c *crowd) claims(ctx context.Context) claimer {
	mine := newClaimer()
	for ctx.Err() == nil {
		user, ok := c.nextUser()
		if !ok {
			break
		}
		sent := time.Now()
		outcome, err := c.strategy.Claim(ctx, user)
		c.note(&mine, user, outcome, err, time.Since(sent))
	}
	return mine
}

// nextUser is the caller next. In a sell-out the asks of one user are neighbours and go to the workers in turns, so that they
// meet each other in different processes.
func (c *crowd) nextUser() (user string, ok bool) {
	n := c.next.Add(1) - 1
	since := time.Since(c.start)
	if c.load.Users == 0 {
		return c.load.Prefix + strconv.Itoa(c.opening.Share) + "-" + strconv.FormatInt(n, 10), since < c.load.For
	}
	ask := int(n)*c.opening.Of + c.opening.Share
	if ask >= c.load.Users*c.load.Asks {
		return "", false
	}
	if since > c.load.AtMost {
		c.mu.Lock()
		c.cut = true
		c.mu.Unlock()
		return "", false
	}
	return c.load.Prefix + strconv.Itoa(ask/c.load.Asks), true
}

func (c *crowd) note(mine *claimer, user string, outcome Outcome, err error, took time.Duration) {
	// A claim whose lease was lost was told so after it was made: the user has the unit.
	if err != nil && (!errors.Is(err, ErrLeaseLost) || outcome != Claimed) {
		mine.failed++
		if mine.failure == nil {
			mine.failure = err
		}
		return
	}
	mine.outcomes[outcome]++
	if outcome != Claimed {
		return
	}
	_ = mine.latency.RecordValue(min(max(took.Microseconds(), 1), latencyMax)) // always in range
	if time.Since(c.start) <= c.load.For {
		mine.inTime++
	}
	if c.load.Present {
		mine.had[user]++
	}
}

func (c *crowd) add(one claimer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o := range one.outcomes {
		c.all.outcomes[o] += one.outcomes[o]
	}
	c.all.inTime += one.inTime
	c.all.failed += one.failed
	if c.all.failure == nil {
		c.all.failure = one.failure
	}
	for user, units := range one.had {
		c.all.had[user] += units
	}
	c.all.latency.Merge(one.latency)
}
