package e2e

import (
	"context"
	"fmt"
	"slices"
	"time"

	"dibs/models"
)

// model replays the rows of a campaign in the order that Redis gave them, against every definition that may have been in
// force at the time, and tells which refusals were right. seq is the order of claims, and claimed_at their time, by the clock
// of this very machine.
type model struct {
	d     *drama
	zone  *time.Location
	rows  []modelRow // by seq
	users map[string][]modelRow
	back  int // claims that were released
}

type modelRow struct {
	book
	id    string
	taken int64 // units of all claims up to it, released or not

	decided time.Time // when it was released, in MySQL; zero is not
	told    time.Time // when Redis had surely given it back; zero is not
}

func (h *house) newModel(ctx context.Context, d *drama, rows map[string]book, audit []heard) (*model, error) {
	zone, err := time.LoadLocation(d.TimeZone)
	if err != nil {
		return nil, err
	}
	decided, err := h.releases(ctx, d.ID)
	if err != nil {
		return nil, err
	}
	told := map[string]time.Time{}
	for i := range audit {
		if audit[i].Type == models.EventClaimReleased {
			told[audit[i].ClaimID] = audit[i].heard
		}
	}
	m := &model{d: d, zone: zone, users: map[string][]modelRow{}, back: len(decided)}
	for id, row := range rows {
		m.rows = append(m.rows, modelRow{book: row, id: id, decided: decided[id], told: told[id]})
	}
	slices.SortFunc(m.rows, func(a, b modelRow) int { return int(a.seq - b.seq) })
	taken := int64(0)
	for i := range m.rows {
		taken += m.rows[i].quantity
		m.rows[i].taken = taken
		m.users[m.rows[i].user] = append(m.users[m.rows[i].user], m.rows[i])
	}
	return m, nil
}

// blur is how far a time in MySQL may be off: it has milliseconds.
const blur = 2 * time.Millisecond

// may lists the values of a field that may have been in force at some time of a stretch.
func (m *model) may(field string, from, till time.Time) (values []int64) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	for _, s := range m.d.spells[field] {
		if s.from.After(till.Add(blur)) || !s.till.IsZero() && s.till.Before(from.Add(-blur)) {
			continue
		}
		values = append(values, s.value)
	}
	return values
}

// units of 0 are no limit.
func unlimited(values []int64) bool { return slices.Contains(values, 0) }

// legal checks that every claim was one that the campaign allowed when it was made.
func (m *model) legal(r *report) {
	users, days := map[string]int64{}, map[string]int64{}
	for i := range m.rows {
		row := &m.rows[i]
		at, end := row.at, row.at.Add(time.Millisecond)
		day := row.user + " on " + at.In(m.zone).Format(time.DateOnly)
		users[row.user] += row.quantity
		days[day] += row.quantity
		held, ofUser, ofDay := row.taken-m.backBy(end, ""), users[row.user]-m.backBy(end, row.user), days[day]-m.backBy(end, row.user)
		wrong := ""
		switch {
		case held > slices.Max(m.may("total", at, end)):
			wrong = fmt.Sprintf("oversold: %d taken of %v", held, m.may("total", at, end))
		case !slices.Contains(m.may("status", at, end), open):
			wrong = "the campaign was paused"
		case slices.Min(m.may("starts_at", at, end)) > end.UnixMilli():
			wrong = "the campaign had not started"
		case slices.Max(m.may("ends_at", at, end)) < at.UnixMilli():
			wrong = "the campaign was over"
		case !unlimited(m.may("per_user", at, end)) && ofUser > slices.Max(m.may("per_user", at, end)):
			wrong = fmt.Sprintf("the user had %d of %v", ofUser, m.may("per_user", at, end))
		case !unlimited(m.may("per_user_per_day", at, end)) && ofDay > slices.Max(m.may("per_user_per_day", at, end)):
			wrong = fmt.Sprintf("the user had %d of %v of the day", ofDay, m.may("per_user_per_day", at, end))
		case i > 0 && row.at.Before(m.rows[i-1].at):
			wrong = "it came before the one before it"
		}
		if wrong != "" {
			r.addf("claim %s %+v: %s", row.id, row.book, wrong)
		}
	}
}

// cacheFor is how long an API process may go on saying that a campaign is sold out: 50 ms, for a call that took its time.
const cacheFor = 150 * time.Millisecond

// refusal says what is wrong with a no; "" is nothing.
func (m *model) refusal(a *asked, t *try) string {
	from, till := t.begun, t.ended
	switch t.code {
	case "sold_out":
		totals := m.may("total", from.Add(-cacheFor), till)
		if taken := m.takenBy(till) - m.surelyBack(from.Add(-cacheFor), ""); taken+a.quantity <= slices.Min(totals) {
			return fmt.Sprintf("%d were taken of %v", taken, totals)
		}
	case "user_limit":
		return m.limited("per_user", m.unitsOf(a.user, till, "")-m.surelyBack(from, a.user), a.quantity, from, till)
	case "user_day_limit":
		most := m.unitsOf(a.user, till, till.In(m.zone).Format(time.DateOnly))
		if from.In(m.zone).Day() != till.In(m.zone).Day() {
			most = max(most, m.unitsOf(a.user, till, from.In(m.zone).Format(time.DateOnly)))
		}
		return m.limited("per_user_per_day", most, a.quantity, from, till)
	case "paused":
		if !slices.Contains(m.may("status", from, till), paused) {
			return "the campaign was open"
		}
	case "not_started":
		if starts := m.may("starts_at", from, till); slices.Max(starts) <= from.Add(-blur).UnixMilli() {
			return fmt.Sprintf("the campaign had started: %v", starts)
		}
	case "ended":
		if ends := m.may("ends_at", from, till); slices.Min(ends) > till.Add(blur).UnixMilli() {
			return fmt.Sprintf("the campaign was not over: %v", ends)
		}
	default:
		return "no such refusal"
	}
	return ""
}

func (m *model) limited(field string, has, wants int64, from, till time.Time) string {
	for _, limit := range m.may(field, from, till) {
		if limit > 0 && has+wants > limit {
			return ""
		}
	}
	return fmt.Sprintf("the user had %d and wanted %d of %v", has, wants, m.may(field, from, till))
}

// takenBy is the most that may have been taken by then.
func (m *model) takenBy(then time.Time) int64 {
	n, _ := slices.BinarySearchFunc(m.rows, then.Add(blur), func(row modelRow, then time.Time) int { return row.at.Compare(then) })
	if n == 0 {
		return 0
	}
	return m.rows[n-1].taken
}

func (m *model) unitsOf(user string, then time.Time, day string) (units int64) {
	for _, row := range m.users[user] {
		if !row.at.After(then.Add(blur)) && (day == "" || row.at.In(m.zone).Format(time.DateOnly) == day) {
			units += row.quantity
		}
	}
	return units
}
