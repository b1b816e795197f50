package claiming

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"dibs/api/wire"
	"dibs/api/workers"
	"dibs/lua"
)

// ticket is one claim on its way through a combiner. From submit on it is the worker's, until its party is done.
type ticket struct {
	req    lua.ClaimRequest
	party  *party
	joined time.Time
	answer answer
}

// answer is what became of a claim. err is as Claimer says, and lua.ErrUnavailable for a claim that was never sent.
type answer struct {
	reply lua.ClaimReply
	err   error
}

// code is the refusal of an answer; "" when the user holds a claim.
func (a *answer) code() wire.Code {
	if a.err != nil {
		return codeOfError(a.err)
	}
	return codeOf(a.reply.Outcome)
}

// party is the tickets of one caller, who waits until the last of them is answered: at most Config.QueueWait and two calls.
// A caller that leaves before its claims are sent has them dropped; one that leaves later need not be told.
type party struct {
	ctx     context.Context //nolint:containedctx // the caller's, asked when its turn comes
	tickets []ticket
	open    atomic.Int32  // tickets without an answer
	done    chan struct{} // holds one
}

// answered is called once for each ticket.
func (p *party) answered(n int32) {
	if p.open.Add(-n) == 0 {
		p.done <- struct{}{}
	}
}

var (
	errQueueFull = fmt.Errorf("%w: too many claims are waiting for this campaign", lua.ErrUnavailable)
	errWaited    = fmt.Errorf("%w: the claim waited too long and was not sent", lua.ErrUnavailable)
	errLeft      = fmt.Errorf("%w: the caller left before the claim was sent", lua.ErrUnavailable)
	errStopping  = fmt.Errorf("%w: the service is stopping", lua.ErrUnavailable)
)

// combiner lets the callers that come while a script call is in flight share the next one. An idle campaign's claim is
// sent at once, and an idle combiner is a struct: its workers exist while something is queued.
//
//	submit ─▶ queue (bounded) ─▶ worker: take ≤ perCall ─▶ call ─▶ settle ─▶ every caller's party
type combiner struct {
	call    func(reqs []lua.ClaimRequest) ([]lua.ClaimReply, error)
	crew    *workers.Workers
	perCall int
	calls   int // at once
	most    int // queued
	waitMax time.Duration
	clock   func() time.Time
	seen    combinerMetrics

	mu     sync.Mutex
	queue  []*ticket
	head   int // of queue
	inWork int // workers
}

// submit queues tickets of one party in order. Those that can't be queued are answered at once.
func (c *combiner) submit(tickets []*ticket) {
	now := c.clock()
	c.mu.Lock()
	queued := min(len(tickets), c.most-(len(c.queue)-c.head))
	for _, t := range tickets[:queued] {
		t.joined = now
	}
	c.queue = append(c.queue, tickets[:queued]...)
	hire := queued > 0 && c.inWork < c.calls && (c.inWork == 0 || len(c.queue)-c.head >= c.perCall)
	if hire && !c.crew.Enter() {
		hire = false
		if c.inWork == 0 { // nobody will come for them
			queued = 0
			c.queue, c.head = c.queue[:0], 0
		}
	}
	if hire {
		c.inWork++
	}
	c.mu.Unlock()
	c.seen.queued(queued)
	if hire {
		go c.work()
	}
	if queued < len(tickets) {
		c.turnAway(tickets[queued:])
	}
}

func (c *combiner) turnAway(tickets []*ticket) {
	err := errQueueFull
	if c.crew.Closed() {
		err = errStopping
	}
	for _, t := range tickets {
		t.answer.err = err
	}
	settle(tickets)
}

// gear is what a worker works with; workers come and go with each lull.
type gear struct {
	sending, turned []*ticket
	reqs            []lua.ClaimRequest
}

var gears = sync.Pool{New: func() any { return new(gear) }}

// stow clears the gear, so that it keeps nobody's claim alive, and puts it away.
func (g *gear) stow() {
	clear(g.sending[:cap(g.sending)])
	clear(g.turned[:cap(g.turned)])
	clear(g.reqs[:cap(g.reqs)])
	gears.Put(g)
}

// work runs calls until nothing is queued.
func (c *combiner) work() {
	defer c.crew.Leave()
	g := gears.Get().(*gear) //nolint:forcetypeassert // only these go in
	defer g.stow()
	for c.take(g) {
		settle(g.turned)
		if len(g.sending) > 0 {
			c.send(g)
		}
	}
}

// take moves what the next call carries from the queue to sending, and what must not be sent any more to turned. With
// nothing for either the worker is dismissed.
func (c *combiner) take(g *gear) bool {
	g.sending, g.turned = g.sending[:0], g.turned[:0]
	before := c.clock().Add(-c.waitMax)
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := 0
	for len(g.sending) < c.perCall && c.head < len(c.queue) {
		t := c.queue[c.head]
		c.queue[c.head] = nil
		c.head++
		gone++
		switch {
		case t.party.ctx.Err() != nil:
			t.answer.err = errLeft
		case t.joined.Before(before):
			t.answer.err = errWaited
		default:
			g.sending = append(g.sending, t)
			continue
		}
		g.turned = append(g.turned, t)
	}
	c.compact()
	c.seen.queued(-gone)
	if len(g.sending) > 0 || len(g.turned) > 0 {
		return true
	}
	c.inWork--
	return false
}

// compact keeps the queue's array from growing for ever.
func (c *combiner) compact() {
	switch {
	case c.head == len(c.queue):
		c.queue, c.head = c.queue[:0], 0
	case c.head > c.most:
		n := copy(c.queue, c.queue[c.head:])
		clear(c.queue[n:])
		c.queue, c.head = c.queue[:n], 0
	}
}

// send makes one call and hands out its replies.
func (c *combiner) send(g *gear) {
	g.reqs = g.reqs[:0]
	for _, t := range g.sending {
		g.reqs = append(g.reqs, t.req)
	}
	c.seen.sent(len(g.reqs))
	replies, err := c.guarded(g.reqs)
	if err == nil && len(replies) != len(g.reqs) {
		err = fmt.Errorf("%w: %d replies to %d claims", lua.ErrOutcomeUnknown, len(replies), len(g.reqs))
	}
	for i, t := range g.sending {
		if t.answer.err = err; err == nil {
			t.answer.reply = replies[i]
		}
	}
	settle(g.sending)
}

// guarded turns a panic into an answer: callers wait for one.
func (c *combiner) guarded(reqs []lua.ClaimRequest) (replies []lua.ClaimReply, err error) {
	defer func() {
		if v := recover(); v != nil {
			replies, err = nil, fmt.Errorf("%w: panic: %v", lua.ErrOutcomeUnknown, v)
		}
	}()
	return c.call(reqs)
}

// settle tells the parties of tickets that have their answers. A party may be gone the moment after it was told of its last
// ticket, so each is told once for all of its tickets that lie side by side.
func settle(tickets []*ticket) {
	for i := 0; i < len(tickets); {
		p, n := tickets[i].party, int32(0)
		for ; i < len(tickets) && tickets[i].party == p; i++ {
			n++
		}
		p.answered(n)
	}
}

// singles are parties of one, for the claim route.
var singles = sync.Pool{New: func() any {
	p := &party{tickets: make([]ticket, 1), done: make(chan struct{}, 1)}
	p.tickets[0].party = p
	return p
}}

// claim sends one claim and waits for its answer.
func (c *combiner) claim(ctx context.Context, req lua.ClaimRequest) answer {
	p := singles.Get().(*party) //nolint:forcetypeassert // only these go in
	t := &p.tickets[0]
	p.ctx, t.req = ctx, req
	p.open.Store(1)
	one := [1]*ticket{t}
	c.submit(one[:])
	<-p.done
	a := t.answer
	p.ctx, t.req, t.answer = nil, lua.ClaimRequest{}, answer{}
	singles.Put(p)
	return a
}
