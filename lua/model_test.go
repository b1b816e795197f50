package lua_test

import (
	"fmt"
	"reflect"
	"slices"
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
	past  []pastClaim
	first map[string]models.Claim
}

// pastClaim is a claim that was taken, as limits count it.
type pastClaim struct {
	req lua.ClaimRequest
	at  time.Time
}

// valueOf is the subject of a claim that a limit is by.
func valueOf(req *lua.ClaimRequest, by string) string {
	if by == models.ByUser {
		return req.UserID
	}
	return req.Subjects[by]
}

// window is the first moment of a window and of the next one.
func window(per models.Per, at time.Time, zone *time.Location) (from, to time.Time) {
	y, m, d := at.In(zone).Date()
	day := func(d int) time.Time { return models.StartOfDay(y, m, d, zone) }
	switch per {
	case models.PerHour:
		from = day(d)
		for !from.Add(time.Hour).After(at) {
			from = from.Add(time.Hour)
		}
		to = from.Add(time.Hour)
		if next := day(d + 1); next.Before(to) {
			to = next
		}
		return from, to
	case models.PerDay:
		return day(d), day(d + 1)
	case models.PerWeek:
		monday := d
		for time.Date(y, m, monday, 12, 0, 0, 0, time.UTC).Weekday() != time.Monday {
			monday--
		}
		return day(monday), day(monday + 7)
	case models.PerMonth:
		return day(1), models.StartOfDay(y, m+1, 1, zone)
	default:
		return time.Time{}, time.Time{}
	}
}

// limited is the answer of the first other limit that a claim exceeds; nil is none. The limits of users come first.
func (m *model) limited(req *lua.ClaimRequest, now time.Time) *lua.ClaimReply {
	for _, ofUser := range []bool{true, false} {
		for _, l := range m.c.Limits {
			if (l.By == models.ByUser) != ofUser {
				continue
			}
			from, to := window(l.Per, now, m.zone)
			reply := &lua.ClaimReply{Outcome: models.OutcomeLimit, Limit: &lua.LimitHit{Limit: l}}
			if !to.IsZero() {
				reply.Limit.ResetsAt = to.UTC()
			}
			if valueOf(req, l.By) == "" {
				reply.Outcome = models.OutcomeInvalid
				return reply
			}
			units := req.Quantity
			for i := range m.past {
				p := &m.past[i]
				isIn := to.IsZero() || !p.at.Before(from) && p.at.Before(to)
				if isIn && p.at.UnixMilli() >= l.FromMs && valueOf(&p.req, l.By) == valueOf(req, l.By) {
					units += p.req.Quantity
				}
			}
			if units > l.Max {
				return reply
			}
		}
	}
	return nil
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
		if before.Quantity != req.Quantity || before.Subjects.JSON() != req.Subjects.JSON() {
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
	if refusal := m.limited(&req, now); refusal != nil {
		return *refusal
	}
	m.past = append(m.past, pastClaim{req, now})
	m.taken, m.seq = m.taken+req.Quantity, m.seq+1
	m.used[req.UserID], m.today[req.UserID] = used, today
	claim := models.Claim{
		ID: req.ID.String(), CampaignID: m.c.ID, UserID: req.UserID, Quantity: req.Quantity, Seq: m.seq,
		Status: models.ClaimClaimed, ClaimedAt: models.NewTime(now),
	}
	m.known[name], m.first[name] = req, claim
	m.last = now
	return lua.ClaimReply{Outcome: models.OutcomeClaimed, Claim: claim, Epoch: m.c.Epoch}
}

// adjust takes newer versions only. A new limit counts what is claimed from now on.
func (m *model) adjust(c models.Campaign, now time.Time) {
	if c.Version <= m.c.Version {
		return
	}
	from := now
	if !m.last.Before(now) {
		from = m.last.Add(time.Millisecond)
	}
	c.Limits = slices.Clone(c.Limits)
	for i := range c.Limits {
		l := &c.Limits[i]
		if l.Added != c.Version {
			continue
		}
		l.FromMs = 0
		if m.seq > 0 {
			l.FromMs = from.UnixMilli()
			m.last = from
		}
	}
	m.c = c
}

// agrees returns what differs between the model and what Redis holds.
func (m *model) agrees(st lua.State) error {
	want := st
	want.Status = m.c.Status
	want.Epoch = m.c.Epoch
	want.Version = m.c.Version
	want.Total = m.c.Total
	want.Taken = m.taken
	want.Seq = m.seq
	want.LowStockAt = m.c.LowStockAt
	if !reflect.DeepEqual(st, want) || !slices.Equal(st.Limits(), m.c.Limits) {
		return fmt.Errorf("state is %+v, want %+v, limits %v", st, want, m.c.Limits)
	}
	return nil
}
