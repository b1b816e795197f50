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
	AppendClaim = appendClaim
	CodeOf      = codeOf
	CampaignOf  = campaignOf
)

const (
	CodesMax    = codesMax
	SoldOutFor  = soldOutFor
	LookupsMax  = lookupsMax
	MaxExchange = maxExchange
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
