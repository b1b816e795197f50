package claiming

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"time"

	"dibs/api/breaker"
	"dibs/api/coalesce"
	"dibs/api/rows"
	"dibs/api/wire"
	"dibs/api/workers"
	"dibs/lua"
	"dibs/models"
)

// Internals that external tests may use.
const (
	CodesMax   = codesMax
	SoldOutFor = soldOutFor
	LookupsMax = lookupsMax
)

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

// RefusedWhileRowsAreFull is the refusal of a claim while rows.Max
// others wait.
func RefusedWhileRowsAreFull(ctx context.Context, known rows.Reader) wire.Code {
	cfg := Config{Rows: known, Workers: &workers.Group{}, Clock: time.Now}
	s := New(cfg)
	waiting := make([]rows.Claim, rows.Max)
	for i := range waiting {
		reply := lua.ClaimReply{Outcome: models.OutcomeClaimed, Claim: models.Claim{ID: strconv.Itoa(i)}}
		waiting[i].Ticket = &coalesce.Ticket{Answer: coalesce.Answer{Reply: reply}}
	}
	ctx, cancel := context.WithCancel(ctx)
	var waiters sync.WaitGroup
	waiters.Go(func() { s.rows.Await(ctx, waiting, nil) })
	defer waiters.Wait()
	defer cancel()
	for !s.rows.IsFull() {
		runtime.Gosched()
	}
	return newLane(&cfg, s.metrics, lua.Meta{ID: "c"}, &breaker.Breaker{}).admit(s, &lua.ClaimRequest{Quantity: 1}, time.Now()).Code
}
