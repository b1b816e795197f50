package lua_test

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"dibs/lua"
	"dibs/models"
	"dibs/models/calendar"
)

// model is what a campaign should do, in the fewest words: the
// reference for the scripts.
type model struct {
	c     models.Campaign
	zone  *time.Location
	last  time.Time      // of the last claim, load or new limit: it never decreases
	past  []pastClaim    // by seq
	known map[string]int // past, by idempotency key or id
}

type pastClaim struct {
	req      lua.ClaimRequest
	claim    models.Claim
	released bool
}

func newModel(c models.Campaign, zone *time.Location) *model {
	return &model{c: c, zone: zone, known: map[string]int{}}
}

// window is the first moment of a window and
// of the next one; both are zero for all time.
func window(per models.Per, at time.Time, zone *time.Location) (from, to time.Time) {
	y, m, d := at.In(zone).Date()
	day := func(d int) time.Time { return calendar.StartOfDay(y, m, d, zone) }
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
		return day(1), calendar.StartOfDay(y, m+1, 1, zone)
	default:
		return time.Time{}, time.Time{}
	}
}

func (m *model) limits() []models.Limit {
	all := []models.Limit{
		{By: models.ByUser, Per: models.PerAll, Max: m.c.PerUser},
		{By: models.ByUser, Per: models.PerDay, Max: m.c.PerUserPerDay},
	}
	for _, ofUser := range []bool{true, false} {
		for _, l := range m.c.Limits {
			if (l.By == models.ByUser) == ofUser {
				all = append(all, l)
			}
		}
	}
	return all
}

func valueOf(req *lua.ClaimRequest, by string) string {
	if by == models.ByUser {
		return req.UserID
	}
	return req.Subjects[by]
}

func (m *model) counted(l *models.Limit, req *lua.ClaimRequest, from, to time.Time) (units int64) {
	for i := range m.past {
		p := &m.past[i]
		at := p.claim.ClaimedAt.Time
		isIn := to.IsZero() || !at.Before(from) && at.Before(to)
		if !p.released && isIn && at.UnixMilli() >= l.FromMs && valueOf(&p.req, l.By) == valueOf(req, l.By) {
			units += p.req.Quantity
		}
	}
	return units
}

// limited is the answer of the first limit that a claim exceeds; nil is none.
func (m *model) limited(req *lua.ClaimRequest, now time.Time) *lua.ClaimReply {
	for i, l := range m.limits() {
		from, to := window(l.Per, now, m.zone)
		reply := &lua.ClaimReply{Outcome: models.OutcomeLimit, Limit: &lua.LimitHit{Limit: l}}
		if !to.IsZero() {
			reply.Limit.ResetsAt = to.UTC()
		}
		switch {
		case valueOf(req, l.By) == "":
			reply.Outcome = models.OutcomeInvalid
			return reply
		case l.Max == 0 || m.counted(&l, req, from, to)+req.Quantity <= l.Max:
		case i < 2: // of per_user and per_user_per_day
			reply.Outcome = []models.Outcome{models.OutcomeUserLimit, models.OutcomeUserDayLimit}[i]
			reply.Limit.Max = 0
			return reply
		default:
			return reply
		}
	}
	return nil
}

func (m *model) units() (taken, sold, released int64) {
	for i := range m.past {
		sold += m.past[i].req.Quantity
		if m.past[i].released {
			released++
		} else {
			taken += m.past[i].req.Quantity
		}
	}
	return taken, sold, released
}

func (m *model) remaining() int64 {
	taken, _, _ := m.units()
	return max(0, m.c.Total-taken)
}

func (m *model) claim(req lua.ClaimRequest, now time.Time) lua.ClaimReply {
	if now.Before(m.last) {
		now = m.last
	}
	name := "key " + req.UserID + " " + req.Key
	if req.Key == "" {
		name = "id " + req.ID.String()
	}
	if i, ok := m.known[name]; ok {
		first := &m.past[i]
		if first.req.Quantity != req.Quantity || first.req.Subjects.JSON() != req.Subjects.JSON() {
			return lua.ClaimReply{Outcome: models.OutcomeIdempotencyMismatch}
		}
		return lua.ClaimReply{Outcome: models.OutcomeReplayed, Claim: first.claim}
	}
	switch {
	case m.c.Status == models.StatusClosed:
		return lua.ClaimReply{Outcome: models.OutcomeClosed}
	case m.c.Status == models.StatusPaused:
		return lua.ClaimReply{Outcome: models.OutcomePaused}
	case m.c.StartsAt != nil && now.Before(*m.c.StartsAt):
		return lua.ClaimReply{Outcome: models.OutcomeNotStarted}
	case m.c.EndsAt != nil && !now.Before(*m.c.EndsAt):
		return lua.ClaimReply{Outcome: models.OutcomeEnded}
	case req.Quantity > m.remaining():
		return lua.ClaimReply{Outcome: models.OutcomeSoldOut}
	}
	if refusal := m.limited(&req, now); refusal != nil {
		return *refusal
	}
	expires := models.NewTime(now.Add(time.Duration(m.c.HoldForMs) * time.Millisecond))
	claim := models.Claim{
		ID: req.ID.String(), CampaignID: m.c.ID, UserID: req.UserID, Quantity: req.Quantity, Seq: int64(len(m.past) + 1),
		Status: models.ClaimClaimed, ClaimedAt: models.NewTime(now), ExpiresAt: &expires,
	}
	m.known[name] = len(m.past)
	m.past = append(m.past, pastClaim{req: req, claim: claim})
	m.last = now
	return lua.ClaimReply{Outcome: models.OutcomeClaimed, Claim: claim, Epoch: m.c.Epoch}
}

func (m *model) release(i int) lua.Released {
	if m.past[i].released {
		return lua.ReleasedBefore
	}
	m.past[i].released = true
	return lua.ReleasedNow
}

// adjust takes newer versions only. A new limit counts claims from now on.
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
		if len(m.past) > 0 {
			l.FromMs = from.UnixMilli()
			m.last = from
		}
	}
	m.c = c
}

func (m *model) reload(now time.Time) {
	m.c.Epoch++
	if n := len(m.past); n > 0 {
		m.last = now
		if newest := m.past[n-1].claim.ClaimedAt.Time; newest.After(now) {
			m.last = newest
		}
	}
}

func (m *model) agrees(st lua.State) error {
	want := st
	want.Status = m.c.Status
	want.Epoch = m.c.Epoch
	want.Version = m.c.Version
	want.Total = m.c.Total
	want.Taken, want.Sold, want.Released = m.units()
	want.Seq = int64(len(m.past))
	want.LowStockAt = m.c.LowStockAt
	if !reflect.DeepEqual(st, want) || !slices.Equal(st.Limits(), m.c.Limits) {
		return fmt.Errorf("state is %+v, want %+v, limits %v", st, want, m.c.Limits)
	}
	return nil
}
