// Package coalesce puts the claims of many callers into one script call.
// Whoever comes while a call is on its way shares the next one.
package coalesce

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"

	"dibs/api/workers"
	"dibs/internal/tracing"
	"dibs/lua"
)

// Ticket is one queued claim. The coalescer owns it from Submit until
// its caller's Wait returns.
type Ticket struct {
	Request lua.ClaimRequest
	Answer

	caller *Caller
	joined time.Time
}

// Answer is a claim's result. Err is as the call says, or
// lua.ErrUnavailable if the claim wasn't sent.
type Answer struct {
	Reply lua.ClaimReply
	Err   error
}

// Caller has its tickets. It waits for all answers, at most for WaitMax
// and two calls. If it leaves, unsent claims are dropped.
type Caller struct {
	Tickets []Ticket

	ctx  context.Context //nolint:containedctx // asked before its claims are sent
	open atomic.Int32    // tickets without an answer
	done chan struct{}   // receives once, after the last answer
}

// NewCaller returns a caller of so many tickets at most, which leaves
// when ctx ends.
func NewCaller(ctx context.Context, tickets int) *Caller {
	return &Caller{ctx: ctx, Tickets: make([]Ticket, 0, tickets), done: make(chan struct{}, 1)}
}

// Add makes a ticket. It must not exceed the capacity: tickets must not move.
func (w *Caller) Add(req lua.ClaimRequest) *Ticket {
	w.open.Add(1)
	w.Tickets = append(w.Tickets, Ticket{Request: req, caller: w})
	return &w.Tickets[len(w.Tickets)-1]
}

// Wait waits until each ticket has its answer.
// All must be submitted, each to one coalescer.
func (w *Caller) Wait() { <-w.done }

// answered records that n tickets have answers. Each ticket is counted once.
func (w *Caller) answered(n int32) {
	if w.open.Add(-n) == 0 {
		w.done <- struct{}{}
	}
}

// Why a claim was not sent.
var (
	ErrQueueFull = fmt.Errorf("%w: too many claims wait for this campaign", lua.ErrUnavailable)
	ErrWaited    = fmt.Errorf("%w: the claim waited too long and was not sent", lua.ErrUnavailable)
	ErrLeft      = fmt.Errorf("%w: the caller left before the claim was sent", lua.ErrUnavailable)
	ErrStopping  = fmt.Errorf("%w: the service is stopping", lua.ErrUnavailable)
)

// Config of a Coalescer.
type Config struct {
	Call       func(reqs []lua.ClaimRequest) ([]lua.ClaimReply, error)
	Refuse     func() error // an error while no claim may be queued
	Group      *workers.Group
	PerCall    int // claims of a call at most
	InFlight   int // concurrent calls at most
	QueueMax   int // waiting claims at most
	WaitMax    time.Duration
	Clock      func() time.Time
	Metrics    Metrics
	Tracer     *tracing.Tracer
	CampaignID string // for spans
}

// Metrics of coalescers, which may share them.
type Metrics struct {
	PerCall prometheus.Observer // claims of a call
	Queued  prometheus.Gauge    // claims that wait
}

// Coalescer puts claims that arrive during a script call into the next
// call. An idle campaign's first claim is sent at once. Workers exist only
// while claims are queued, so an idle coalescer has no goroutine.
//
//	Submit ─▶ bounded queue ─▶ worker: take ≤ PerCall ─▶ call ─▶ notify
type Coalescer struct {
	cfg     Config
	singles sync.Pool // reused callers of one claim

	mu      sync.Mutex
	queue   []*Ticket
	head    int // start of the queue
	workers int
}

// New returns a Coalescer.
func New(cfg Config) *Coalescer { return &Coalescer{cfg: cfg} }

// Claim submits one claim and waits. It returns its ticket.
func (c *Coalescer) Claim(ctx context.Context, req lua.ClaimRequest) Ticket {
	w, used := c.singles.Get().(*Caller)
	if !used {
		w = NewCaller(ctx, 1)
		w.Add(req)
	}
	defer c.singles.Put(w)
	t := &w.Tickets[0]
	w.ctx = ctx
	*t = Ticket{Request: req, caller: w}
	w.open.Store(1)
	one := [1]*Ticket{t}
	c.Submit(one[:])
	w.Wait()
	answered := *t
	w.ctx = nil
	*t = Ticket{} // don't retain the caller's data
	return answered
}

// Submit queues one caller's tickets in order. Those beyond QueueMax
// are answered at once.
func (c *Coalescer) Submit(tickets []*Ticket) {
	if err := c.cfg.Refuse(); err != nil {
		for _, t := range tickets {
			t.Err = err
		}
		notify(tickets)
		return
	}
	now := c.cfg.Clock()
	err := ErrQueueFull
	c.mu.Lock()
	queued := min(len(tickets), c.cfg.QueueMax-c.waiting())
	for _, t := range tickets[:queued] {
		t.joined = now
	}
	c.queue = append(c.queue, tickets[:queued]...)
	if queued > 0 && c.workers < c.cfg.InFlight && (c.workers == 0 || c.waiting() >= c.cfg.PerCall) {
		switch {
		case c.cfg.Group.Go(c.work):
			c.workers++
		case c.workers == 0: // no other tickets are queued, and no worker will come
			queued = 0
			err = ErrStopping
			c.queue = c.queue[:0]
			c.head = 0
		}
	}
	c.mu.Unlock()
	c.cfg.Metrics.Queued.Add(float64(queued))
	for _, t := range tickets[queued:] {
		t.Err = err
	}
	notify(tickets[queued:])
}

func (c *Coalescer) waiting() int { return len(c.queue) - c.head }

// scratch is a worker's memory. Workers end with each lull, so it is reused.
type scratch struct {
	sending, dropped []*Ticket
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

func (c *Coalescer) work() {
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
func (c *Coalescer) take(s *scratch) bool {
	s.sending = s.sending[:0]
	s.dropped = s.dropped[:0]
	before := c.cfg.Clock().Add(-c.cfg.WaitMax)
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(s.sending) < c.cfg.PerCall && c.waiting() > 0 {
		t := c.queue[c.head]
		c.queue[c.head] = nil
		c.head++
		switch {
		case t.caller.ctx.Err() != nil:
			t.Err = ErrLeft
		case t.joined.Before(before):
			t.Err = ErrWaited
		default:
			s.sending = append(s.sending, t)
			continue
		}
		s.dropped = append(s.dropped, t)
	}
	c.compact()
	taken := len(s.sending) + len(s.dropped)
	c.cfg.Metrics.Queued.Sub(float64(taken))
	if taken == 0 {
		c.workers--
	}
	return taken > 0
}

// compact bounds the queue's array.
func (c *Coalescer) compact() {
	switch {
	case c.waiting() == 0:
		c.queue = c.queue[:0]
		c.head = 0
	case c.head > c.cfg.QueueMax:
		n := copy(c.queue, c.queue[c.head:])
		clear(c.queue[n:])
		c.queue = c.queue[:n]
		c.head = 0
	}
}

func (c *Coalescer) send(s *scratch) {
	s.reqs = s.reqs[:0]
	for _, t := range s.sending {
		s.reqs = append(s.reqs, t.Request)
	}
	c.cfg.Metrics.PerCall.Observe(float64(len(s.reqs)))
	span := c.trace(s)
	replies, err := c.callRecovering(s.reqs)
	span.Done(err)
	if err == nil && len(replies) != len(s.reqs) {
		err = fmt.Errorf("%w: %d replies to %d claims", lua.ErrOutcomeUnknown, len(replies), len(s.reqs))
	}
	for i, t := range s.sending {
		t.Err = err
		if err == nil {
			t.Reply = replies[i]
		}
	}
	notify(s.sending)
}

// trace starts a call's span if any claim is traced, and sets the
// trace parent of the claims' events.
func (c *Coalescer) trace(s *scratch) *tracing.Span {
	if c.cfg.Tracer == nil {
		return nil
	}
	var spans []*tracing.Span
	var last *Caller
	parent := ""
	for i, t := range s.sending {
		if t.caller != last { // a batch's claims share one span
			last = t.caller
			span := c.cfg.Tracer.Sampled(last.ctx)
			parent = span.Parent()
			if span != nil {
				spans = append(spans, span)
			}
		}
		s.reqs[i].TraceParent = parent
	}
	return c.cfg.Tracer.Shared("claim script", spans,
		attribute.String("dibs.campaign_id", c.cfg.CampaignID), attribute.Int("dibs.claims", len(s.reqs)))
}

// callRecovering converts a panic to an error, so that callers get an answer.
func (c *Coalescer) callRecovering(reqs []lua.ClaimRequest) (replies []lua.ClaimReply, err error) {
	defer func() {
		if v := recover(); v != nil {
			replies = nil
			err = fmt.Errorf("%w: panic: %v", lua.ErrOutcomeUnknown, v)
		}
	}()
	return c.cfg.Call(reqs)
}

// notify counts answered tickets at their callers. A caller may be
// reused once its last ticket is counted. So adjacent tickets of one
// caller are counted together.
func notify(tickets []*Ticket) {
	for i := 0; i < len(tickets); {
		w := tickets[i].caller
		n := int32(0)
		for ; i < len(tickets) && tickets[i].caller == w; i++ {
			n++
		}
		w.answered(n)
	}
}
