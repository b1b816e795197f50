package lua_test

import (
	"fmt"
	"time"

	"dibs/lua"
	"dibs/models"
)

// model is what a campaign should do, in the fewest words: the reference that claim.lua is held against.
type model struct {
	c     models.Campaign
	zone  *time.Location
	taken int64
	seq   int64
	used  map[string]int64            // by user
	today map[string]daily            // by user
	known map[string]lua.ClaimRequest // by idempotency key, or id
	last  time.Time                   // of the last claim that was taken
	first map[string]models.Claim
}

// daily is what a user took on the last day that counted.
type daily struct {
	date  string
	units int64
}

func newModel(c models.Campaign, zone *time.Location) *model {
	return &model{c: c, zone: zone, used: map[string]int64{}, today: map[string]daily{},
		known: map[string]lua.ClaimRequest{}, first: map[string]models.Claim{}}
}

func (m *model) claim(req lua.ClaimRequest, now time.Time) lua.ClaimReply {
	if now.Before(m.last) {
		now = m.last
	}
	name := "key " + req.UserID + " " + req.Key
	if req.Key == "" {
		name = "id " + req.ID.String()
	}
	if before, ok := m.known[name]; ok {
		if before.Quantity != req.Quantity {
			return lua.ClaimReply{Outcome: models.OutcomeIdempotencyMismatch}
		}
		return lua.ClaimReply{Outcome: models.OutcomeReplayed, Claim: m.first[name]}
	}
	date := now.In(m.zone).Format(time.DateOnly)
	today := m.today[req.UserID]
	if today.date < date {
		today = daily{date: date}
	}
	used := m.used[req.UserID] + req.Quantity
	today.units += req.Quantity
	switch {
	case m.c.Status == models.StatusClosed:
		return lua.ClaimReply{Outcome: models.OutcomeClosed}
	case m.c.Status == models.StatusPaused:
		return lua.ClaimReply{Outcome: models.OutcomePaused}
	case m.c.StartsAt != nil && now.Before(*m.c.StartsAt):
		return lua.ClaimReply{Outcome: models.OutcomeNotStarted}
	case m.c.EndsAt != nil && !now.Before(*m.c.EndsAt):
		return lua.ClaimReply{Outcome: models.OutcomeEnded}
	case m.taken+req.Quantity > m.c.Total:
		return lua.ClaimReply{Outcome: models.OutcomeSoldOut}
	case m.c.PerUser > 0 && used > m.c.PerUser:
		return lua.ClaimReply{Outcome: models.OutcomeUserLimit}
	case m.c.PerUserPerDay > 0 && today.units > m.c.PerUserPerDay:
		return lua.ClaimReply{Outcome: models.OutcomeUserDayLimit}
	}
	m.taken, m.seq = m.taken+req.Quantity, m.seq+1
	m.used[req.UserID], m.today[req.UserID] = used, today
	claim := models.Claim{
		ID: req.ID.String(), CampaignID: m.c.ID, UserID: req.UserID, Quantity: req.Quantity, Seq: m.seq,
		Status: models.ClaimClaimed, ClaimedAt: models.NewTime(now),
	}
	m.known[name], m.first[name] = req, claim
	m.last = now
	return lua.ClaimReply{Outcome: models.OutcomeClaimed, Claim: claim}
}

// adjust takes newer versions only.
func (m *model) adjust(c models.Campaign) {
	if c.Version > m.c.Version {
		m.c = c
	}
}

// agrees returns what differs between the model and what Redis holds.
func (m *model) agrees(st lua.State) error {
	want := lua.State{
		Meta: st.Meta, Status: m.c.Status, Epoch: m.c.Epoch, Version: m.c.Version, Total: m.c.Total, Taken: m.taken, Seq: m.seq,
		LowStockAt: m.c.LowStockAt, AsOf: st.AsOf, LastMs: st.LastMs,
	}
	if st != want {
		return fmt.Errorf("state is %+v, want %+v", st, want)
	}
	return nil
}
