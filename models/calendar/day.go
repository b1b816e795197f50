package calendar

import (
	"iter"
	"time"
)

// StartOfDay is the first moment at which a zone's clocks show the date or a
// later one.
//   - If midnight is skipped, the day begins right after the gap.
//   - If midnight occurs twice, it begins at the first.
//   - If the zone skips the whole date, it begins where the next day does.
func StartOfDay(y int, m time.Month, d int, zone *time.Location) time.Time {
	return firstShowing(time.Date(y, m, d, 0, 0, 0, 0, time.UTC), zone)
}

// firstShowing is the first moment at which a zone's clocks show this time or
// a later one. wall is that clock time, written as UTC.
func firstShowing(wall time.Time, zone *time.Location) time.Time {
	for s := range stretches(wall, zone) {
		if s.at.Before(s.from) {
			return s.from
		}
		if s.at.Before(s.to) {
			return s.at
		}
	}
	return wall // unreachable: no offset is longer than a day
}

// showing returns the moments at which a zone's clocks show this time: none
// if they skip it, two if they are set back over it.
func showing(wall time.Time, zone *time.Location) (moments []time.Time) {
	for s := range stretches(wall, zone) {
		if !s.at.Before(s.from) && s.at.Before(s.to) {
			moments = append(moments, s.at)
		}
	}
	return moments
}

type stretch struct {
	from, to time.Time
	at       time.Time // when this offset would show the time; may be outside the stretch
}

// aroundTheEarth is longer than any offset and any change of clocks.
const aroundTheEarth = 48 * time.Hour

// quarter is the step past a wrong zone bound. All clock changes of years
// that only have rules fall on its multiples.
const quarter = 15 * time.Minute

// stretches yields those that may show a time. time.Date is no help here: it
// doesn't define which side of a clock change it takes.
func stretches(wall time.Time, zone *time.Location) iter.Seq[stretch] {
	return func(yield func(stretch) bool) {
		last := wall.Add(aroundTheEarth)
		for t := wall.Add(-aroundTheEarth).In(zone); t.Before(last); {
			_, offset := t.Zone()
			_, end := t.ZoneBounds()
			if end.IsZero() {
				end = last
			}
			if !end.After(t) { // seen in Go 1.26 on the last day of a leap year
				end = t.Add(quarter)
			}
			at := wall.Add(-time.Duration(offset) * time.Second).In(zone)
			if !yield(stretch{t, end, at}) {
				return
			}
			t = end
		}
	}
}

// Day is a day of a time zone.
type Day struct {
	Date     string // such as 2027-01-31
	Zone     *time.Location
	From, To time.Time // its first moment, and that of the next day
}

// The years for which days can be summed up. MySQL's columns and the API's
// times end with them.
const firstDayYear, lastDayYear = 1970, 9998

// ParseDay reads a date in a zone. Errors: TimeError.
func ParseDay(date string, zone *time.Location) (Day, error) {
	at, err := time.Parse(time.DateOnly, date)
	if err != nil || at.Year() < firstDayYear || at.Year() > lastDayYear {
		return Day{}, refuse("must be a day such as 2027-01-31, of the years %d to %d", firstDayYear, lastDayYear)
	}
	y, m, d := at.Date()
	day := Day{Date: date, Zone: zone, From: StartOfDay(y, m, d, zone), To: StartOfDay(y, m, d+1, zone)}
	if !day.From.Before(day.To) {
		before := day.From.Add(-1).Format(time.DateOnly)
		after := day.To.Format(time.DateOnly)
		return Day{}, refuse("is no day of %s: its calendar went from %s to %s", zone, before, after)
	}
	return day, nil
}

// Twice selects one of two moments when clocks are set back and show a time
// twice.
type Twice string

// The moments to select. Without one, an ambiguous time is refused.
const (
	TwiceFirst  Twice = "first"
	TwiceSecond Twice = "second"
)

// localMinutes is a local time without seconds, as browsers send it.
const localMinutes = "2006-01-02T15:04"

// ParseLocal reads a time such as 2027-01-31T18:00 on the zone's clocks, or
// an RFC 3339 time with its offset. Errors: TimeError.
func ParseLocal(text string, zone *time.Location, twice Twice) (time.Time, error) {
	if at, err := ParseTime(text); err == nil {
		return at, nil
	}
	seconds := text
	if len(text) == len(localMinutes) {
		seconds += ":00"
	}
	wall, err := ParseTime(seconds + "Z")
	if err != nil {
		return time.Time{}, refuse("must be a time such as 2027-01-31T18:00, not “%s”", text)
	}
	moments := showing(wall, zone)
	switch {
	case len(moments) == 0:
		return time.Time{}, refuse("must be a time that exists: the clocks of %s skip %s, and go on at %s",
			zone, text, FormatLocal(firstShowing(wall, zone), zone))
	case len(moments) == 1 || twice == TwiceFirst:
		return moments[0], nil
	case twice == TwiceSecond:
		return moments[1], nil
	}
	return time.Time{}, refuse("must be the first or the second of its kind: the clocks of %s show it twice, as %s and as %s",
		zone, moments[0].Format(time.RFC3339), moments[1].Format(time.RFC3339))
}

// FormatLocal is the reverse of ParseLocal. It writes seconds only if they
// aren't zero.
func FormatLocal(at time.Time, zone *time.Location) string {
	at = at.In(zone)
	if at.Second() == 0 {
		return at.Format(localMinutes)
	}
	return at.Format(localMinutes + ":05")
}
