package claiming

import (
	"context"
	"strconv"
	"time"

	"dibs/api/wire"
	"dibs/api/workers"
	"dibs/lua"
	"dibs/models"
)

// What tests outside of the package may see of its inside.
var (
	AppendClaim  = appendClaim
	CodeOf       = codeOf
	CampaignOf   = campaignOf
	ErrQueueFull = errQueueFull
	ErrWaited    = errWaited
	ErrLeft      = errLeft
	ErrStopping  = errStopping
)

// Constants that tests measure against.
const (
	CodesMax   = codesMax
	SoldOutFor = soldOutFor
	LookupsMax = lookupsMax
)

// RequestFields are the fields that are decoded, by the schema that describes
// them.
func RequestFields() map[string][]string {
	all := map[string][]string{}
	for schema, fields := range map[string][]wire.Field{
		"NewClaim": new(claimBody).fields(), "NewClaims": new(batchBody).fields(), "NewClaimOfBatch": new(batchClaim).fields(),
	} {
		for _, f := range fields {
			all[schema] = append(all[schema], f.Name)
		}
	}
	return all
}

// Coalescer is a coalescer on its own.
type Coalescer struct {
	c     coalescer
	group workers.Group
}

// CoalescerConfig of a Coalescer.
type CoalescerConfig struct {
	PerCall, InFlight, QueueMax int
	WaitMax                     time.Duration
	Clock                       func() time.Time
}

// NewCoalescer makes one that calls call.
func NewCoalescer(cfg CoalescerConfig, call func([]lua.ClaimRequest) ([]lua.ClaimReply, error)) *Coalescer {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	c := &Coalescer{}
	c.c = coalescer{
		breaker: &breaker{},
		call:    call, group: &c.group, perCall: cfg.PerCall, inFlight: cfg.InFlight, queueMax: cfg.QueueMax, waitMax: cfg.WaitMax,
		clock: cfg.Clock, metrics: newMetrics(nil),
	}
	return c
}

// Claim sends one claim and waits.
func (c *Coalescer) Claim(ctx context.Context, req lua.ClaimRequest) (lua.ClaimReply, error) {
	t := c.c.claim(ctx, req)
	return t.answer.reply, t.answer.err
}

// Batch sends claims of one caller and waits.
func (c *Coalescer) Batch(ctx context.Context, reqs []lua.ClaimRequest) ([]lua.ClaimReply, []error) {
	w := newWaiter(ctx, len(reqs))
	tickets := make([]*ticket, len(reqs))
	for i := range reqs {
		tickets[i] = w.add(reqs[i])
	}
	c.c.submit(tickets)
	<-w.done
	replies, errs := make([]lua.ClaimReply, len(reqs)), make([]error, len(reqs))
	for i, t := range tickets {
		replies[i], errs[i] = t.answer.reply, t.answer.err
	}
	return replies, errs
}

// Queued is how many claims wait.
func (c *Coalescer) Queued() int {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	return c.c.waiting()
}

// Workers is how many work.
func (c *Coalescer) Workers() int {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	return c.c.workers
}

// Stop is the group's.
func (c *Coalescer) Stop(ctx context.Context) error { return c.group.Stop(ctx) }

// SoldOut is a soldOut on its own.
type SoldOut struct{ s soldOut }

// Refuses reports whether a claim is refused.
func (s *SoldOut) Refuses(now time.Time) bool { return s.s.covers(1, now) != nil }

// Invalidate is invalidate.
func (s *SoldOut) Invalidate() { s.s.invalidate() }

// Round is when a call begins.
func (s *SoldOut) Round() int64 { return s.s.round.Load() }

// Learn is learnFrom, of outcomes.
func (s *SoldOut) Learn(round int64, now time.Time, remaining int64, outcomes ...models.Outcome) {
	replies := make([]lua.ClaimReply, len(outcomes))
	for i := range outcomes {
		replies[i].Outcome = outcomes[i]
	}
	s.s.learnFrom(round, now, replies, remaining)
}

// KeepInMemory sets how many campaigns are kept in memory, and for how long
// without claims.
func (s *Routes) KeepInMemory(campaigns int, idle time.Duration) {
	s.lanes.campaignsMax, s.lanes.campaignIdle = campaigns, idle
}

// Campaigns is how many campaigns are in memory.
func (s *Routes) Campaigns() int {
	s.lanes.mu.RLock()
	defer s.lanes.mu.RUnlock()
	return len(s.lanes.byID)
}

// UserLimiter reports whether a user may claim now, at one process that may
// share its counts with others.
func UserLimiter(perSecond float64, shared AttemptCounter) (users func(userID string) bool, stop func(ctx context.Context) error) {
	var group workers.Group
	u := newUserLimiter(&Config{UserRate: perSecond, Attempts: shared, Workers: &group, Clock: time.Now})
	return func(userID string) bool { return u.refuse(userID, time.Now()) == nil }, group.Stop
}

// RefusedWhileRowsAreFull is the refusal of a claim while as many as may wait
// for their rows.
func RefusedWhileRowsAreFull(known Rows) wire.Code {
	cfg := Config{Rows: known, Clock: time.Now}
	s := New(cfg)
	for i := range rowsMax {
		s.rows.waiting[strconv.Itoa(i)] = &row{}
	}
	return newLane(&cfg, s.metrics, lua.Meta{ID: "c"}, &breaker{}).admit(s, &lua.ClaimRequest{Quantity: 1}, time.Now()).Code
}
