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

// Internals that external tests may use.
var (
	AppendClaim  = appendClaim
	CodeOf       = codeOf
	CampaignOf   = campaignOf
	ErrQueueFull = errQueueFull
	ErrWaited    = errWaited
	ErrLeft      = errLeft
	ErrStopping  = errStopping
)

const (
	CodesMax   = codesMax
	SoldOutFor = soldOutFor
	LookupsMax = lookupsMax
)

// RequestFields are the decoded fields, by the schema that describes them.
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

type CoalescerConfig struct {
	PerCall, InFlight, QueueMax int
	WaitMax                     time.Duration
	Clock                       func() time.Time
}

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

func (c *Coalescer) Queued() int {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	return c.c.waiting()
}

func (c *Coalescer) Workers() int {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	return c.c.workers
}

func (c *Coalescer) Stop(ctx context.Context) error { return c.group.Stop(ctx) }

type SoldOut struct{ s soldOut }

func (s *SoldOut) Refuses(now time.Time) bool { return s.s.covers(1, now) != nil }

func (s *SoldOut) Invalidate() { s.s.invalidate() }

func (s *SoldOut) Round() int64 { return s.s.round.Load() }

// Learn is learnFrom for these outcomes.
func (s *SoldOut) Learn(round int64, now time.Time, remaining int64, outcomes ...models.Outcome) {
	replies := make([]lua.ClaimReply, len(outcomes))
	for i := range outcomes {
		replies[i].Outcome = outcomes[i]
	}
	s.s.learnFrom(round, now, replies, remaining)
}

// KeepInMemory bounds the campaigns in memory, and how long they stay
// without claims.
func (s *Routes) KeepInMemory(campaigns int, idle time.Duration) {
	s.lanes.campaignsMax, s.lanes.campaignIdle = campaigns, idle
}

func (s *Routes) Campaigns() int {
	s.lanes.mu.RLock()
	defer s.lanes.mu.RUnlock()
	return len(s.lanes.byID)
}

// UserLimiter reports whether a user may claim now, in a process that
// may share its counts with others.
func UserLimiter(perSecond float64, shared AttemptCounter) (users func(userID string) bool, stop func(ctx context.Context) error) {
	var group workers.Group
	u := newUserLimiter(&Config{UserRate: perSecond, Attempts: shared, Workers: &group, Clock: time.Now})
	return func(userID string) bool { return u.refuse(userID, time.Now()) == nil }, group.Stop
}

// RefusedWhileRowsAreFull is the refusal of a claim while rowsMax
// others wait.
func RefusedWhileRowsAreFull(known Rows) wire.Code {
	cfg := Config{Rows: known, Clock: time.Now}
	s := New(cfg)
	for i := range rowsMax {
		s.rows.waiting[strconv.Itoa(i)] = &row{}
	}
	return newLane(&cfg, s.metrics, lua.Meta{ID: "c"}, &breaker{}).admit(s, &lua.ClaimRequest{Quantity: 1}, time.Now()).Code
}
