package lua

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"dibs/models"
	"dibs/models/calendar"
)

// A user's first two limits have their own fields of the state and
// codes of claim.lua. They are counted even while unset, so a limit set
// later counts earlier claims.

// LimitHit is the limit that refused a claim.
type LimitHit struct {
	models.Limit

	// when the window ends, by Redis' clock, as it refused; zero: never
	ResetsAt time.Time
}

// tagOf identifies a limit among those of a subject: the first letter
// of its window, and the definition that added it. A limit that is
// removed and added again has another tag.
func tagOf(l *models.Limit) string { return string(l.Per[:1]) + formatInt(l.Added) }

// formatLimits formats the field limits of a campaign's state, see
// read_limits.
func formatLimits(limits models.Limits) string {
	var text []byte
	for i := range limits {
		if i > 0 {
			text = append(text, ';')
		}
		l := &limits[i]
		text = fmt.Appendf(text, "%s:%d:%d:%s", tagOf(l), l.Max, l.FromMs, l.By)
	}
	return string(text)
}

func parseLimits(text string) (models.Limits, error) {
	if text == "" {
		return nil, nil
	}
	var limits models.Limits
	for one := range strings.SplitSeq(text, ";") {
		parts := strings.Split(one, ":")
		if len(parts) != 4 || len(parts[0]) < 2 || !models.IsSubjectName(parts[3]) {
			return nil, errField
		}
		at := slices.IndexFunc(models.Pers, func(per models.Per) bool { return string(per[:1]) == parts[0][:1] })
		var n [3]uint64
		for i, number := range []string{parts[0][1:], parts[1], parts[2]} {
			var err error
			n[i], err = strconv.ParseUint(number, 10, 63)
			if err != nil || len(number) > digitsMax {
				return nil, errField
			}
		}
		if at < 0 {
			return nil, errField
		}
		limits = append(limits, models.Limit{
			By: parts[3], Per: models.Pers[at], Added: int64(n[0]), Max: int64(n[1]), FromMs: int64(n[2]),
		})
	}
	return limits, nil
}

// windowFinder finds a claim's windows as claim.lua does. It caches the
// days around the last one.
type windowFinder struct {
	zone  *time.Location
	table days
}

func (f *windowFinder) day(ms int64) (day, startMs int64) {
	if ms < f.table.starts[daysBefore] || ms >= f.table.starts[daysBefore+1] {
		f.table = daysAround(time.UnixMilli(ms), f.zone)
	}
	for i := len(f.table.starts) - 2; i > 0; i-- {
		if ms >= f.table.starts[i] {
			return f.table.first + int64(i), f.table.starts[i]
		}
	}
	return f.table.first, f.table.starts[0]
}

const (
	hourMs      = int64(time.Hour / time.Millisecond)
	hoursOfDay  = 100 // hours per day in the numbers of hours: more than any day has
	daysOfWeek  = 7
	thursday    = 3 // 1970-01-01, counted from Monday
	yearOfMonth = 12
)

func (f *windowFinder) of(per models.Per, ms int64) int64 {
	day, startMs := f.day(ms)
	switch per {
	case models.PerHour:
		return day*hoursOfDay + (ms-startMs)/hourMs
	case models.PerDay:
		return day
	case models.PerWeek:
		return (day + thursday) / daysOfWeek
	case models.PerMonth:
		y, m, _ := dateOf(day)
		return int64(y)*yearOfMonth + int64(m)
	default:
		return 0
	}
}

// text is release.lua's argument: the time of a
// claim, and its windows except that of all time.
func (f *windowFinder) text(at time.Time) string {
	ms := at.UnixMilli()
	text := strconv.AppendInt(nil, ms, 10)
	for _, per := range models.Pers[1:] {
		text = append(text, ';', per[0])
		text = strconv.AppendInt(text, f.of(per, ms), 10)
	}
	return string(text)
}

// dateOf is the date of a day since 1970-01-01.
func dateOf(day int64) (int, time.Month, int) { return time.Unix(day*86400, 0).UTC().Date() }

// resetsAt returns when the window of a moment ends; zero is never.
func resetsAt(per models.Per, ms int64, zone *time.Location) time.Time {
	f := windowFinder{zone: zone}
	day, startMs := f.day(ms)
	y, m, d := dateOf(day)
	switch per {
	case models.PerHour:
		end := time.UnixMilli(startMs + ((ms-startMs)/hourMs+1)*hourMs)
		if next := calendar.StartOfDay(y, m, d+1, zone); next.Before(end) {
			return next
		}
		return end
	case models.PerDay:
		return calendar.StartOfDay(y, m, d+1, zone)
	case models.PerWeek:
		return calendar.StartOfDay(y, m, d+daysOfWeek-int((day+thursday)%daysOfWeek), zone)
	case models.PerMonth:
		return calendar.StartOfDay(y, m+1, 1, zone)
	default:
		return time.Time{}
	}
}

// subjectMark separates name and value of a subject in the hash of
// users. No user id has it.
const subjectMark = "\n"

// record is a subject's units: for each of its limits, the newest
// window and the units in it.
type record []count

type count struct{ window, units int64 }

func (c count) counted() bool { return c.window >= 0 }

const notCounted = -1

// limitsBy are a campaign's limits by subject. Those of the user start
// with all and day, set or not.
type limitsBy map[string][]models.Limit

func limitsOf(c *models.Campaign) limitsBy {
	by := limitsBy{models.ByUser: {
		{By: models.ByUser, Per: models.PerAll, Max: c.PerUser},
		{By: models.ByUser, Per: models.PerDay, Max: c.PerUserPerDay},
	}}
	for _, l := range c.Limits {
		by[l.By] = append(by[l.By], l)
	}
	return by
}

// of returns the limits of the subject of a field of the hash of users.
func (by limitsBy) of(field string) []models.Limit {
	name, _, found := strings.Cut(field, subjectMark)
	if !found {
		name = models.ByUser
	}
	return by[name]
}

// isPlain reports whether a limit has no tag in records: a user's first two.
func isPlain(l *models.Limit) bool {
	return l.By == models.ByUser && (l.Per == models.PerAll || l.Per == models.PerDay)
}

func (r record) appendTo(text []byte, limits []models.Limit) []byte {
	for i := range r {
		switch {
		case !r[i].counted():
			continue
		case !isPlain(&limits[i]):
			text = append(append(append(text, ';'), tagOf(&limits[i])...), '.')
		case i > 0:
			text = append(text, ';')
		}
		text = strconv.AppendInt(text, r[i].window, 10)
		text = strconv.AppendInt(append(text, ':'), r[i].units, 10)
	}
	return text
}

// UserRecords compute the records of users and other subjects of a
// campaign from MySQL's claims. They serve one goroutine.
type UserRecords struct {
	limits  limitsBy
	finder  windowFinder
	byField map[string]record
}

// NewUserRecords returns UserRecords without claims, for about users users.
func NewUserRecords(c *models.Campaign, users int64) (*UserRecords, error) {
	zone, err := c.Location()
	if err != nil {
		return nil, fmt.Errorf("lua: campaign %s: %w", c.ID, err)
	}
	return &UserRecords{
		limits: limitsOf(c), finder: windowFinder{zone: zone}, byField: make(map[string]record, min(users, maxUsersGuess)),
	}, nil
}

// maxUsersGuess bounds the memory that is allocated for expected users.
const maxUsersGuess = 1 << 20

// Add counts a claim. Claims are added in order
// of seq. One that is not live counts 0 units.
func (u *UserRecords) Add(p *ClaimRecord) {
	ms := p.At.UnixMilli()
	units := p.Quantity
	if !p.Live {
		units = 0
	}
	r := u.byField[string(p.UserID)]
	if r == nil { // a user whose claims are all released has a record too
		r = newRecord(u.limits[models.ByUser])
		u.byField[string(p.UserID)] = r
	}
	u.add(r, u.limits[models.ByUser], ms, units)
	for name, value := range p.Subjects {
		limits := u.limits[name]
		if !slices.ContainsFunc(limits, func(l models.Limit) bool { return l.FromMs <= ms }) {
			continue
		}
		field := name + subjectMark + value
		r := u.byField[field]
		if r == nil {
			r = newRecord(limits)
			u.byField[field] = r
		}
		u.add(r, limits, ms, units)
	}
}

func newRecord(limits []models.Limit) record {
	r := make(record, len(limits))
	for i := range r {
		r[i].window = notCounted
	}
	return r
}

// add counts units as claim.lua does: in the newest window. A claim of an
// earlier one may follow, as seqs overlap after a loss in Redis.
func (u *UserRecords) add(r record, limits []models.Limit, ms, units int64) {
	for i := range r {
		if limits[i].FromMs > ms {
			continue
		}
		switch window := u.finder.of(limits[i].Per, ms); {
		case window > r[i].window:
			r[i] = count{window, units}
		case window == r[i].window:
			r[i].units += units
		}
	}
}

func subjectColumns(reqs []ClaimRequest) (names []string) {
	for i := range reqs {
		for name := range reqs[i].Subjects {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// subjectField returns the field of a claim's
// subject in the hash of users, or "".
func subjectField(s models.Subjects, name string) string {
	value, found := s[name]
	if !found {
		return ""
	}
	return name + subjectMark + value
}

// hit returns the limit with a number in
// the list at the end of claim.lua's reply.
func hit(m Meta, text any, number, nowMs int64) *LimitHit {
	list, _ := text.(string)
	limits, err := parseLimits(list)
	if err != nil || number < 1 || number > int64(len(limits)) {
		return nil
	}
	return hitOf(m, limits[number-1], nowMs)
}

func hitOf(m Meta, l models.Limit, nowMs int64) *LimitHit {
	h := &LimitHit{Limit: l, ResetsAt: resetsAt(l.Per, nowMs, cmp.Or(m.Location, time.UTC))}
	if !h.ResetsAt.IsZero() {
		h.ResetsAt = h.ResetsAt.UTC()
	}
	return h
}
