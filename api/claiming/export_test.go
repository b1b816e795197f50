package claiming

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dibs/api/wire"
	"dibs/api/workers"
	"dibs/lua"
	"dibs/models"
)

// What tests outside of the package may see of its inside.
var (
	AppendClaim   = appendClaim
	CodeOf        = codeOf
	RequestFields = map[string][]string{"ClaimBody": claimFields, "BatchBody": batchFields, "BatchClaim": batchClaimFields}
	ErrQueueFull  = errQueueFull
	ErrWaited     = errWaited
	ErrLeft       = errLeft
	ErrStopping   = errStopping

	ClaimedCampaign = claimedCampaign
)

// DecodeClaim is decodeClaim with its code; "" is accepted.
func DecodeClaim(body []byte) (userID string, quantity int64, code wire.Code) {
	b, p := decodeClaim(body)
	if p != nil {
		return "", 0, p.Code
	}
	return b.UserID, b.Quantity, ""
}

// Decoded is a claim of a batch and its code; "" is accepted.
type Decoded struct {
	CampaignID, UserID, Key string
	Quantity                int64
	Code                    wire.Code
}

// DecodeBatch is decodeBatch with its code; "" is accepted.
func DecodeBatch(body []byte) ([]Decoded, wire.Code) {
	claims, p := decodeBatch(body)
	if p != nil {
		return nil, p.Code
	}
	out := make([]Decoded, len(claims))
	for i, c := range claims {
		if out[i].Code = ""; c.refused != nil {
			out[i].Code = c.refused.Code
			continue
		}
		out[i] = Decoded{c.CampaignID, c.UserID, c.IdempotencyKey, c.Quantity, ""}
	}
	return out, ""
}

// Combiner is a combiner on its own.
type Combiner struct {
	c    combiner
	crew *workers.Workers
}

// CombinerConfig of a Combiner.
type CombinerConfig struct {
	PerCall, Calls, Most int
	WaitMax              time.Duration
	Clock                func() time.Time
}

// NewCombiner makes one that calls call.
func NewCombiner(cfg CombinerConfig, call func([]lua.ClaimRequest) ([]lua.ClaimReply, error)) *Combiner {
	crew := workers.New()
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	return &Combiner{crew: crew, c: combiner{
		call: call, crew: crew, perCall: cfg.PerCall, calls: cfg.Calls, most: cfg.Most, waitMax: cfg.WaitMax, clock: cfg.Clock,
		seen: combinerMetrics{
			prometheus.NewHistogram(prometheus.HistogramOpts{Name: "size"}), prometheus.NewGauge(prometheus.GaugeOpts{Name: "depth"}),
		},
	}}
}

// Claim sends one claim and waits.
func (c *Combiner) Claim(ctx context.Context, req lua.ClaimRequest) (lua.ClaimReply, error) {
	a := c.c.claim(ctx, req)
	return a.reply, a.err
}

// Batch sends claims of one caller and waits.
func (c *Combiner) Batch(ctx context.Context, reqs []lua.ClaimRequest) ([]lua.ClaimReply, []error) {
	p := &party{ctx: ctx, tickets: make([]ticket, len(reqs)), done: make(chan struct{}, 1)}
	tickets := make([]*ticket, len(reqs))
	for i := range reqs {
		p.tickets[i] = ticket{party: p, req: reqs[i]}
		tickets[i] = &p.tickets[i]
	}
	p.open.Store(int32(len(reqs)))
	c.c.submit(tickets)
	<-p.done
	replies, errs := make([]lua.ClaimReply, len(reqs)), make([]error, len(reqs))
	for i, t := range tickets {
		replies[i], errs[i] = t.answer.reply, t.answer.err
	}
	return replies, errs
}

// Queued is how many claims wait.
func (c *Combiner) Queued() int {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	return len(c.c.queue) - c.c.head
}

// Workers is how many work.
func (c *Combiner) Workers() int {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	return c.c.inWork
}

// Stop is the crew's.
func (c *Combiner) Stop(ctx context.Context) error { return c.crew.Stop(ctx) }

// SoldOut is a soldOut on its own.
type SoldOut struct{ s soldOut }

// NewSoldOut makes one.
func NewSoldOut(lasts time.Duration) *SoldOut {
	s := &SoldOut{}
	s.s.lasts = lasts
	return s
}

// Refuses is refuses.
func (s *SoldOut) Refuses(now time.Time) bool { return s.s.refuses(now) }

// Forget is forget.
func (s *SoldOut) Forget() { s.s.forget() }

// Doubt is doubt.
func (s *SoldOut) Doubt() { s.s.doubt() }

// Round is when a call begins.
func (s *SoldOut) Round() int64 { return s.s.round.Load() }

// Learn is learn from outcomes.
func (s *SoldOut) Learn(round int64, now time.Time, remaining int64, outcomes ...models.Outcome) {
	replies := make([]lua.ClaimReply, len(outcomes))
	for i := range outcomes {
		replies[i].Outcome = outcomes[i]
	}
	s.s.learn(round, now, replies, remaining)
}

// Campaigns is how many campaigns are kept in memory.
func (s *Routes) Campaigns() int {
	s.desks.mu.RLock()
	defer s.desks.mu.RUnlock()
	return len(s.desks.byID)
}
