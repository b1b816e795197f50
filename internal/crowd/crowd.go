// Package crowd sends many users' claims to a running Dibs over
// HTTP and counts the replies, to compare them with its data.
// `dibs demo` and the whole-pipeline tests use it.
package crowd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"dibs/internal/sleep"
	"dibs/models"
)

// Plan configures a crowd. Every user claims once, in no fixed
// order; some repeat the claim with the same key.
type Plan struct {
	BaseURLs    []string // of API processes; users are spread over them
	Token       string   // bearer token; "": none
	CampaignID  string
	Users       int
	Connections int                  // concurrent users
	Quantity    func(user int) int64 // units; nil: 1
	PerSecond   float64              // users starting per second; 0: unlimited
	Batch       int                  // claims per POST /v1/claims:batch; 0 and 1: single claims
	// whether a user repeats the claim after the reply; nil: never
	Again func(user int) bool
	// whether a user never retries, whatever the reply; nil: all retry
	Once   func(user int) bool
	UserID func(user int) string // nil: user-<n>
	// Subjects are a claim's subjects beside its user; nil: none.
	Subjects func(user int) map[string]string
	Attempts int                // per claim, until its outcome is known; 0: 50
	Pause    time.Duration      // before a retry; 0: 20 ms
	Progress func(answered int) // gets the number of answered users; may be nil
}

// Tally counts a crowd's replies.
type Tally struct {
	Sent     int   // requests, including retries
	Accepted int   // claims
	Units    int64 // of accepted claims
	Replayed int   // replies marked as replays
	Unknown  int   // replies that left the outcome unknown until a retry
	// replies and failed connections that certainly claimed nothing
	// and were retried
	Unready int
	Refused map[string]int          // users finally refused, by code
	Claims  map[string]models.Claim // accepted, by claim id
	// units of users whose outcome is still unknown
	InDoubt map[string]int64
	Faults  []string // replies that violate the contract; none are expected
	Took    time.Duration
}

const faultsMax = 20

// Run sends the claims and returns the tally once every user has a reply. It
// fails if an outcome is unknown after all attempts, or ctx ends.
func Run(ctx context.Context, p Plan) (Tally, error) {
	p = p.withDefaults()
	start := time.Now()
	r := &run{plan: p, tally: Tally{
		Refused: map[string]int{}, Claims: map[string]models.Claim{}, InDoubt: map[string]int64{},
	}}
	r.client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		MaxIdleConnsPerHost: p.Connections, MaxConnsPerHost: p.Connections, DisableCompression: true,
	}}
	defer r.client.CloseIdleConnections()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pace := rate.NewLimiter(rate.Inf, 0)
	if p.PerSecond > 0 {
		pace = rate.NewLimiter(rate.Limit(p.PerSecond), p.Batch)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range p.Connections {
		wg.Go(func() {
			for ctx.Err() == nil {
				if pace.WaitN(ctx, p.Batch) != nil {
					return // ctx has ended
				}
				from := int(next.Add(int64(p.Batch))) - p.Batch
				if from >= p.Users {
					return
				}
				if err := r.ask(ctx, from, min(from+p.Batch, p.Users)); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	r.tally.Took = time.Since(start)
	return r.tally, context.Cause(ctx)
}

func (p Plan) withDefaults() Plan {
	if p.Quantity == nil {
		p.Quantity = func(int) int64 { return 1 }
	}
	if p.Again == nil {
		p.Again = func(int) bool { return false }
	}
	if p.Once == nil {
		p.Once = func(int) bool { return false }
	}
	if p.UserID == nil {
		p.UserID = func(user int) string { return fmt.Sprintf("user-%d", user) }
	}
	if p.Attempts == 0 {
		p.Attempts = 50
	}
	if p.Pause == 0 {
		p.Pause = 20 * time.Millisecond
	}
	if p.Progress == nil {
		p.Progress = func(int) {}
	}
	p.Batch = max(p.Batch, 1)
	p.Connections = max(p.Connections, 1)
	return p
}

type run struct {
	plan   Plan
	client *http.Client

	mu       sync.Mutex
	tally    Tally
	answered int
}

// ErrUnknown means that a claim's outcome was still unknown
// after all attempts.
var ErrUnknown = errors.New("crowd: outcome still unknown")

// ask sends the claims of users from..to-1, singly or as one
// batch, until each has its final reply.
func (r *run) ask(ctx context.Context, from, to int) error {
	waiting := make([]int, 0, to-from)
	for user := from; user < to; user++ {
		waiting = append(waiting, user)
	}
	first := make(map[int]answer, len(waiting))
	for attempt := 0; len(waiting) > 0; attempt++ {
		if attempt == r.plan.Attempts {
			return fmt.Errorf("%w: %s after %d attempts", ErrUnknown, r.plan.UserID(waiting[0]), attempt)
		}
		if attempt > 0 && sleep.For(ctx, r.plan.Pause) != nil {
			return ctx.Err()
		}
		answers := r.send(ctx, r.base(from/r.plan.Batch+attempt), waiting)
		waiting = r.record(waiting, answers, first)
	}
	if err := r.sendAgain(ctx, from/r.plan.Batch, first); err != nil {
		return err
	}
	r.mu.Lock()
	r.answered += to - from
	answered := r.answered
	r.mu.Unlock()
	r.plan.Progress(answered)
	return nil
}

// base spreads users over all processes. Each retry goes to the next one.
func (r *run) base(turn int) string { return r.plan.BaseURLs[turn%len(r.plan.BaseURLs)] }

// record counts the replies and returns the users who must retry.
func (r *run) record(users []int, answers []answer, first map[int]answer) (waiting []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, user := range users {
		a := answers[i]
		r.tally.Sent++
		switch {
		case a.claim != nil:
			r.accept(user, a)
			first[user] = a
		case a.retryable() && !r.plan.Once(user):
			waiting = append(waiting, user)
		default:
			r.tally.Refused[a.code]++
		}
		r.recordDoubt(user, a)
	}
	return waiting
}

// recordDoubt records whether a user's outcome is unknown. A
// retry with the same key resolves it.
func (r *run) recordDoubt(user int, a answer) {
	switch {
	case a.unknown():
		r.tally.Unknown++
		r.tally.InDoubt[r.plan.UserID(user)] = r.plan.Quantity(user)
	case a.retryable():
		r.tally.Unready++
	default:
		delete(r.tally.InDoubt, r.plan.UserID(user))
	}
}

func (r *run) accept(user int, a answer) {
	if a.replayed {
		r.tally.Replayed++
	}
	if a.claim.UserID != r.plan.UserID(user) || a.claim.Quantity != r.plan.Quantity(user) || a.claim.CampaignID != r.plan.CampaignID {
		r.faultf("%s asked for %d, got %+v", r.plan.UserID(user), r.plan.Quantity(user), *a.claim)
	}
	if _, twice := r.tally.Claims[a.claim.ID]; twice {
		r.faultf("two users got claim %s", a.claim.ID)
		return
	}
	r.tally.Claims[a.claim.ID] = *a.claim
	r.tally.Accepted++
	r.tally.Units += a.claim.Quantity
}

func (r *run) faultf(format string, args ...any) {
	if len(r.tally.Faults) < faultsMax {
		r.tally.Faults = append(r.tally.Faults, fmt.Sprintf(format, args...))
	}
}

// sendAgain repeats accepted claims with their keys. Each must
// get its first reply again, byte for byte.
func (r *run) sendAgain(ctx context.Context, turn int, first map[int]answer) error {
	for user, before := range first {
		if !r.plan.Again(user) {
			continue
		}
		for attempt := 0; ; attempt++ {
			if r.compare(user, before, r.send(ctx, r.base(turn+1+attempt), []int{user})[0]) {
				break
			}
			if attempt == r.plan.Attempts || sleep.For(ctx, r.plan.Pause) != nil {
				return fmt.Errorf("%w: %s again", ErrUnknown, r.plan.UserID(user))
			}
		}
	}
	return nil
}

// compare compares a repeated claim's reply with the first;
// false means retry.
func (r *run) compare(user int, before, a answer) (final bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.Sent++
	switch {
	case a.claim != nil:
		r.tally.Replayed++
		if a.body != before.body || !a.replayed && r.plan.Batch == 1 {
			r.faultf("%s: first %s, again %s", r.plan.UserID(user), before.body, a.body)
		}
	case a.retryable():
		return false
	default:
		r.faultf("%s: first %s, again refused: %s", r.plan.UserID(user), before.body, a.code)
	}
	return true
}
