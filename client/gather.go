package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// maxGatherTime is how long a claim waits for others while a call could
	// be made.
	maxGatherTime = time.Millisecond
	// maxCalls bounds a campaign's calls in flight. minCampaigns bounds its
	// share of the connections: slow calls of one campaign must leave
	// connections to others. If eight calls are in flight, a claim waits
	// about an eighth of a call.
	maxCalls     = 8
	minCampaigns = 4
	// maxLane bounds a campaign's claims, waiting or in flight. Further
	// callers wait for a slot.
	maxLane = 4096
)

// batcher puts claims of one campaign into shared calls. A shared call is
// one attempt of each of its claims. Keys, retries and errors stay with the
// callers, who return for the next attempt.
//
//	attempt ─▶ lane of the campaign
//	  no call in flight ─▶ at once, in its own request
//	  else ─▶ queue ─▶ one claims:batch when a call returns,
//	                   Config.Batch wait, or 1 ms is over
//
// Campaigns share nothing here, so a slow one delays only its own claims.
type batcher struct {
	client *Client
	calls  int // most concurrent calls of a lane

	mu    sync.Mutex
	lanes map[string]*lane // by campaign; those with callers
}

// lane is one campaign's claims. The batcher's mutex guards it.
type lane struct {
	slots   chan struct{} // one for each claim inside
	callers int           // including those waiting for a slot
	calls   int           // in flight
	queue   []*waiter     // in order
	timer   *time.Timer   // runs while the queue isn't empty and a call could be made
}

// waiter is a claim that waits to be sent, or for its answer.
type waiter struct {
	body   claimBody
	result chan verdict // holds one
	call   *sharedCall  // nil while queued
}

// verdict is a waiter's result, or the order to send its claim in its own
// request.
type verdict struct {
	claimResult

	turn  bool // that request is the lane's next call
	alone bool // the batch refused the claim in its own words, without doing anything
}

// sharedCall is a call with several claims. It is cancelled when all their
// callers have left.
type sharedCall struct {
	waiters []*waiter
	staying int
	cancel  context.CancelFunc
}

func newGatherer(c *Client) *batcher {
	return &batcher{client: c, calls: min(maxCalls, max(1, c.cfg.Connections/minCampaigns)), lanes: make(map[string]*lane)}
}

// claim makes one attempt of a claim. Errors: as Client.once.
func (g *batcher) claim(ctx context.Context, req ClaimRequest) (Claim, error) {
	// what is refused unsent would have the others of its batch sent alone
	if g.client.cfg.Batch == 1 || !sameInHeader(req.Key) || !utf8.ValidString(req.UserID) {
		return g.client.claimAlone(ctx, req)
	}
	ctx, cancel := context.WithTimeout(ctx, g.client.cfg.AttemptTimeout)
	defer cancel()
	l := g.enter(req.CampaignID)
	defer g.leave(req.CampaignID, l)
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return Claim{}, &unsentError{ctx.Err()}
	}
	v := g.await(ctx, l, g.join(l, claimBody(req)))
	if v.turn {
		defer g.landed(l)
	}
	if v.turn || v.alone {
		return g.client.claimAlone(ctx, req)
	}
	return v.claim, v.err
}

// sameInHeader reports whether a key is equal in a header and in JSON. A
// claim with another key never goes in a batch: sent once each way, it
// would be two claims.
func sameInHeader(key string) bool {
	return key == strings.TrimSpace(key) && !strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
}

func (g *batcher) enter(campaignID string) *lane {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lanes[campaignID]
	if l == nil {
		l = &lane{slots: make(chan struct{}, maxLane)}
		g.lanes[campaignID] = l
	}
	l.callers++
	return l
}

func (g *batcher) leave(campaignID string, l *lane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.callers--
	if l.callers == 0 {
		delete(g.lanes, campaignID)
	}
}

// join queues a claim, and sends the queue unless it should wait.
func (g *batcher) join(l *lane, body claimBody) *waiter {
	w := &waiter{body: body, result: make(chan verdict, 1)}
	g.mu.Lock()
	defer g.mu.Unlock()
	l.queue = append(l.queue, w)
	switch {
	case l.calls == 0 || len(l.queue) >= g.client.cfg.Batch:
		g.send(l)
	case len(l.queue) > 1: // the timer already runs
	case l.timer == nil:
		l.timer = time.AfterFunc(maxGatherTime, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.send(l)
		})
	default:
		l.timer.Reset(maxGatherTime)
	}
	return w
}

// send starts calls for the queue, as many as may be in flight.
func (g *batcher) send(l *lane) {
	for len(l.queue) > 0 && l.calls < g.calls {
		n := min(len(l.queue), g.client.cfg.Batch)
		sent := slices.Clone(l.queue[:n])
		l.queue = slices.Delete(l.queue, 0, n)
		l.calls++
		if n == 1 { // its caller makes the call
			sent[0].result <- verdict{turn: true}
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		call := &sharedCall{waiters: sent, staying: n, cancel: cancel}
		for _, w := range sent {
			w.call = call
		}
		go g.share(ctx, l, call)
	}
}

func (g *batcher) landed(l *lane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.calls--
	g.send(l)
}

func (g *batcher) share(ctx context.Context, l *lane, call *sharedCall) {
	defer g.landed(l)
	defer call.cancel()
	bodies := make([]claimBody, len(call.waiters))
	for i, w := range call.waiters {
		bodies[i] = w.body
	}
	results, err := g.client.sendBatch(ctx, bodies)
	for i, w := range call.waiters {
		// refused as a whole: perhaps because of one claim, or by a gateway
		// that refuses batches
		if err != nil {
			w.result <- verdict{claimResult: claimResult{err: err}, alone: fateOf(err) == fate{}}
			continue
		}
		w.result <- verdict{claimResult: results[i], alone: errors.Is(results[i].err, ErrInvalid)}
	}
}

// await waits until the waiter has its result or its context ends.
func (g *batcher) await(ctx context.Context, l *lane, w *waiter) verdict {
	select {
	case v := <-w.result:
		return v
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case v := <-w.result: // it arrived since
		return v
	default:
	}
	if w.call == nil {
		at := slices.Index(l.queue, w)
		l.queue = slices.Delete(l.queue, at, at+1)
		return verdict{claimResult: claimResult{err: &unsentError{ctx.Err()}}}
	}
	w.call.staying--
	if w.call.staying == 0 {
		w.call.cancel()
	}
	// the call continues for the others
	return verdict{claimResult: claimResult{err: fmt.Errorf("client: %w", ctx.Err())}}
}
