package claiming

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"dibs/api/workers"
	"dibs/internal/tracing"
	"dibs/lua"
)

// ticket is one queued claim. The coalescer owns it from submit until
// its waiter is notified.
type ticket struct {
	req    lua.ClaimRequest
	waiter *waiter
	joined time.Time
	answer answer
}

// answer is a claim's result. err is as Claimer says, or
// lua.ErrUnavailable if the claim wasn't sent.
type answer struct {
	reply lua.ClaimReply
	err   error
}

// waiter is a caller with its tickets. It waits for all answers, at most for
// QueueWait and two calls. If the caller leaves, unsent claims are dropped.
type waiter struct {
	ctx     context.Context //nolint:containedctx // the caller's, asked before its claims are sent
	tickets []ticket
	open    atomic.Int32  // tickets without an answer
	done    chan struct{} // receives once, after the last answer
}

func newWaiter(ctx context.Context, tickets int) *waiter {
	return &waiter{ctx: ctx, tickets: make([]ticket, 0, tickets), done: make(chan struct{}, 1)}
}

// add makes a ticket. It must not exceed the capacity: tickets must not move.
func (w *waiter) add(req lua.ClaimRequest) *ticket {
	w.open.Add(1)
	w.tickets = append(w.tickets, ticket{req: req, waiter: w})
	return &w.tickets[len(w.tickets)-1]
}

// answered records that n tickets have answers. Each ticket is counted once.
func (w *waiter) answered(n int32) {
	if w.open.Add(-n) == 0 {
		w.done <- struct{}{}
	}
}

var (
	errQueueFull = fmt.Errorf("%w: too many claims wait for this campaign", lua.ErrUnavailable)
	errWaited    = fmt.Errorf("%w: the claim waited too long and was not sent", lua.ErrUnavailable)
	errLeft      = fmt.Errorf("%w: the caller left before the claim was sent", lua.ErrUnavailable)
	errStopping  = fmt.Errorf("%w: the service is stopping", lua.ErrUnavailable)
)

// queueMax bounds a campaign's waiting claims: a third of a second at
// 25,000 claims a second.
const queueMax = 8192

// coalescer puts claims that arrive during a script call into the next
// call. An idle campaign's first claim is sent at once. Workers exist only
// while claims are queued, so an idle coalescer has no goroutine.
//
//	submit ─▶ bounded queue ─▶ worker: take ≤ perCall ─▶ call ─▶ notify
type coalescer struct {
	call       func(reqs []lua.ClaimRequest) ([]lua.ClaimReply, error)
	breaker    *breaker
	group      *workers.Group
	perCall    int
	inFlight   int // concurrent calls
	queueMax   int
	waitMax    time.Duration
	clock      func() time.Time
	metrics    *metrics
	tracer     *tracing.Tracer
	campaignID string    // for spans
	singles    sync.Pool // reused waiters of one claim

	mu      sync.Mutex
	queue   []*ticket
	head    int // start of the queue
	workers int
}

func (c *coalescer) claim(ctx context.Context, req lua.ClaimRequest) ticket {
	w, used := c.singles.Get().(*waiter)
	if !used {
		w = newWaiter(ctx, 1)
		w.add(req)
	}
	defer c.singles.Put(w)
	t := &w.tickets[0]
	w.ctx = ctx
	*t = ticket{req: req, waiter: w}
	w.open.Store(1)
	one := [1]*ticket{t}
	c.submit(one[:])
	<-w.done
	answered := *t
	w.ctx = nil
	*t = ticket{} // don't retain the caller's data
	return answered
}

// submit queues one waiter's tickets in order. Those beyond queueMax
// are answered at once.
func (c *coalescer) submit(tickets []*ticket) {
	if c.breaker.refuses() {
		for _, t := range tickets {
			t.answer.err = errAway
		}
		notify(tickets)
		return
	}
	now := c.clock()
	err := errQueueFull
	c.mu.Lock()
	queued := min(len(tickets), c.queueMax-c.waiting())
	for _, t := range tickets[:queued] {
		t.joined = now
	}
	c.queue = append(c.queue, tickets[:queued]...)
	if queued > 0 && c.workers < c.inFlight && (c.workers == 0 || c.waiting() >= c.perCall) {
		switch {
		case c.group.Go(c.work):
			c.workers++
		case c.workers == 0: // no other tickets are queued, and no worker will come
			queued = 0
			err = errStopping
			c.queue = c.queue[:0]
			c.head = 0
		}
	}
	c.mu.Unlock()
	c.metrics.queued.Add(float64(queued))
	for _, t := range tickets[queued:] {
		t.answer.err = err
	}
	notify(tickets[queued:])
}

func (c *coalescer) waiting() int { return len(c.queue) - c.head }

// scratch is a worker's memory. Workers end with each lull, so it is reused.
type scratch struct {
	sending, dropped []*ticket
	reqs             []lua.ClaimRequest
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// release clears the scratch, so that no claim is retained, and returns it.
func (s *scratch) release() {
	clear(s.sending[:cap(s.sending)])
	clear(s.dropped[:cap(s.dropped)])
	clear(s.reqs[:cap(s.reqs)])
	scratches.Put(s)
}

func (c *coalescer) work() {
	s := scratches.Get().(*scratch) //nolint:forcetypeassert // only these go in
	defer s.release()
	for c.take(s) {
		notify(s.dropped)
		if len(s.sending) > 0 {
			c.send(s)
		}
	}
}

// take moves tickets from the queue: to sending for the next call, or
// to dropped if they must not be sent any more. It returns false if
// the queue was empty and the worker ends.
func (c *coalescer) take(s *scratch) bool {
	s.sending = s.sending[:0]
	s.dropped = s.dropped[:0]
	before := c.clock().Add(-c.waitMax)
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(s.sending) < c.perCall && c.waiting() > 0 {
		t := c.queue[c.head]
		c.queue[c.head] = nil
		c.head++
		switch {
		case t.waiter.ctx.Err() != nil:
			t.answer.err = errLeft
		case t.joined.Before(before):
			t.answer.err = errWaited
		default:
			s.sending = append(s.sending, t)
			continue
		}
		s.dropped = append(s.dropped, t)
	}
	c.compact()
	taken := len(s.sending) + len(s.dropped)
	c.metrics.queued.Sub(float64(taken))
	if taken == 0 {
		c.workers--
	}
	return taken > 0
}

// compact bounds the queue's array.
func (c *coalescer) compact() {
	switch {
	case c.waiting() == 0:
		c.queue = c.queue[:0]
		c.head = 0
	case c.head > c.queueMax:
		n := copy(c.queue, c.queue[c.head:])
		clear(c.queue[n:])
		c.queue = c.queue[:n]
		c.head = 0
	}
}

func (c *coalescer) send(s *scratch) {
	s.reqs = s.reqs[:0]
	for _, t := range s.sending {
		s.reqs = append(s.reqs, t.req)
	}
	c.metrics.perCall.Observe(float64(len(s.reqs)))
	span := c.trace(s)
	replies, err := c.callRecovering(s.reqs)
	span.Done(err)
	if err == nil && len(replies) != len(s.reqs) {
		err = fmt.Errorf("%w: %d replies to %d claims", lua.ErrOutcomeUnknown, len(replies), len(s.reqs))
	}
	for i, t := range s.sending {
		t.answer.err = err
		if err == nil {
			t.answer.reply = replies[i]
		}
	}
	notify(s.sending)
}

// trace starts a call's span if any claim is traced, and sets the
// trace parent of the claims' events.
func (c *coalescer) trace(s *scratch) *tracing.Span {
	if c.tracer == nil {
		return nil
	}
	var spans []*tracing.Span
	var last *waiter
	parent := ""
	for i, t := range s.sending {
		if t.waiter != last { // a batch's claims share one span
			last = t.waiter
			span := c.tracer.Sampled(last.ctx)
			parent = span.Parent()
			if span != nil {
				spans = append(spans, span)
			}
		}
		s.reqs[i].TraceParent = parent
	}
	return c.tracer.Shared("claim script", spans,
		attribute.String("dibs.campaign_id", c.campaignID), attribute.Int("dibs.claims", len(s.reqs)))
}

// callRecovering converts a panic to an error, so that waiters get an answer.
func (c *coalescer) callRecovering(reqs []lua.ClaimRequest) (replies []lua.ClaimReply, err error) {
	defer func() {
		if v := recover(); v != nil {
			replies = nil
			err = fmt.Errorf("%w: panic: %v", lua.ErrOutcomeUnknown, v)
		}
	}()
	return c.call(reqs)
}

// notify counts answered tickets at their waiters. A waiter may be
// reused once its last ticket is counted. So adjacent tickets of one
// waiter are counted together.
func notify(tickets []*ticket) {
	for i := 0; i < len(tickets); {
		w := tickets[i].waiter
		n := int32(0)
		for ; i < len(tickets) && tickets[i].waiter == w; i++ {
			n++
		}
		w.answered(n)
	}
}
