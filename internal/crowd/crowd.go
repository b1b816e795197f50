// Package crowd sends a crowd at a Dibs over HTTP and keeps count of what it was told, so that the books can be held
// against it. `dibs demo` and the whole-pipeline tests use it.
package crowd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"dibs/models"
)

// Plan is what a crowd does. Every user asks once, in an order of its own; some ask again with the same key.
type Plan struct {
	BaseURLs    []string // of one or more API processes; users are spread over them
	Token       string   // bearer; "" sends none
	CampaignID  string
	Users       int
	Connections int                   // users asking at the same time
	Quantity    func(user int) int64  // units; nil is 1
	Batch       int                   // claims in one POST /v1/claims:batch; 0 and 1 use single claims
	Again       func(user int) bool   // whether a user sends the same claim once more after the answer; nil is nobody
	Once        func(user int) bool   // whether a user takes the first answer for the last, even one that asks to come again; nil is nobody
	UserID      func(user int) string // nil is user-<n>
	Attempts    int                   // how often one claim is sent until its outcome is known; 0 is 50
	Pause       time.Duration         // before it is sent again; 0 is 20 ms
	Progress    func(answered int)    // called with the number of users answered so far; nil is nobody
}

// Tally is what the crowd was told.
type Tally struct {
	Sent     int                     // requests, retries included
	Accepted int                     // claims
	Units    int64                   // of accepted claims
	Replayed int                     // answers marked as the first answer again
	Unknown  int                     // answers that left the outcome open, later settled by a retry
	Unready  int                     // answers that surely claimed nothing and asked to come again, and requests that reached nobody
	Refused  map[string]int          // users refused for good, by code
	Claims   map[string]models.Claim // accepted, by claim id
	InDoubt  map[string]int64        // users who never learnt what became of their claim, and the units they asked for
	Faults   []string                // answers that break the contract; there must be none
	Took     time.Duration
}

// faultsMax bounds Tally.Faults.
const faultsMax = 20

// Run sends the crowd and returns what it was told, once every user has an answer. It fails when a claim's outcome stays
// unknown after all attempts, or ctx ends.
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
	var next atomic.Int64
	var wg sync.WaitGroup
	for range p.Connections {
		wg.Go(func() {
			for ctx.Err() == nil {
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

// run is a crowd under way.
type run struct {
	plan   Plan
	client *http.Client

	mu       sync.Mutex
	tally    Tally
	answered int
}

// ErrUnsettled says that a claim's outcome was still unknown after all attempts.
var ErrUnsettled = errors.New("crowd: outcome still unknown")

// ask settles the claims of users from..to-1: one request each, or one batch.
func (r *run) ask(ctx context.Context, from, to int) error {
	open := make([]int, 0, to-from)
	for user := from; user < to; user++ {
		open = append(open, user)
	}
	first := make(map[int]answer, len(open))
	for attempt := 0; len(open) > 0; attempt++ {
		if attempt == r.plan.Attempts {
			return fmt.Errorf("%w: %s after %d attempts", ErrUnsettled, r.plan.UserID(open[0]), attempt)
		}
		if attempt > 0 && !sleep(ctx, r.plan.Pause) {
			return ctx.Err()
		}
		answers := r.send(ctx, r.base(from/r.plan.Batch+attempt), open)
		open = r.settle(open, answers, first)
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

// base is the process whose turn it is: users are spread over all, and each further try goes to the next.
func (r *run) base(turn int) string { return r.plan.BaseURLs[turn%len(r.plan.BaseURLs)] }

// settle books the final answers and returns the users whose outcome is still open.
func (r *run) settle(users []int, answers []answer, first map[int]answer) (open []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, user := range users {
		a := answers[i]
		r.tally.Sent++
		switch {
		case a.claim != nil:
			r.accept(user, a)
			first[user] = a
		case a.open() && !r.plan.Once(user):
			open = append(open, user)
		default:
			r.tally.Refused[a.code]++
		}
		r.doubt(user, a)
	}
	return open
}

// doubt keeps who does not know whether a claim was made. Coming again with the same key settles it, one way or the other.
func (r *run) doubt(user int, a answer) {
	switch {
	case a.unknown():
		r.tally.Unknown++
		r.tally.InDoubt[r.plan.UserID(user)] = r.plan.Quantity(user)
	case a.open():
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
		r.faultf("%s asked for %d, was given %+v", r.plan.UserID(user), r.plan.Quantity(user), *a.claim)
	}
	if _, twice := r.tally.Claims[a.claim.ID]; twice {
		r.faultf("claim %s was given to two users", a.claim.ID)
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

// sendAgain repeats accepted claims with their keys: the first answer must come again, byte for byte.
func (r *run) sendAgain(ctx context.Context, turn int, first map[int]answer) error {
	for user, before := range first {
		if !r.plan.Again(user) {
			continue
		}
		for attempt := 0; ; attempt++ {
			if r.again(user, before, r.send(ctx, r.base(turn+1+attempt), []int{user})[0]) {
				break
			}
			if attempt == r.plan.Attempts || !sleep(ctx, r.plan.Pause) {
				return fmt.Errorf("%w: %s again", ErrUnsettled, r.plan.UserID(user))
			}
		}
	}
	return nil
}

// again holds an answer against the first one; false when it is none yet.
func (r *run) again(user int, before, a answer) (settled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.Sent++
	switch {
	case a.claim != nil:
		r.tally.Replayed++
		if a.body != before.body || !a.replayed && r.plan.Batch == 1 {
			r.faultf("%s: first %s, again %s", r.plan.UserID(user), before.body, a.body)
		}
	case a.open():
		return false
	default:
		r.faultf("%s: first %s, again refused: %s", r.plan.UserID(user), before.body, a.code)
	}
	return true
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
