package models

import "time"

// StartOfDay is the first moment at which the clocks of a zone show a date, or a later one.
// So a day whose midnight is skipped begins at the moment after the gap, one whose midnight comes
// twice at the first of the two, and one that the zone leaves out begins where the next one does.
// time.Date does not say which side of a change of the clocks it takes: each stretch of one offset
// is looked at in turn.
func StartOfDay(y int, m time.Month, d int, zone *time.Location) time.Time {
	midnight := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	for t := midnight.Add(-48 * time.Hour).In(zone); ; { // before the date everywhere on Earth
		_, offset := t.Zone()
		start := midnight.Add(-time.Duration(offset) * time.Second).In(zone)
		if start.Before(t) {
			return t
		}
		_, end := t.ZoneBounds()
		if !end.IsZero() && !end.After(t) { // Go 1.26 says so on the last day of a leap year
			end = t.Add(quarter)
		}
		if end.IsZero() || start.Before(end) {
			return start
		}
		t = end
	}
}

// quarter divides the times at which clocks change in years that have rules alone.
const quarter = 15 * time.Minute

// Day is a day of a time zone.
type Day struct {
	Date     string // such as 2027-01-31
	Zone     *time.Location
	From, To time.Time // its first moment, and that of the next day
}

// Days that are added up. The columns of MySQL and the times of the API have no later year.
const firstDayYear, lastDayYear = 1970, 9998

// ParseDay reads a date of a zone. Errors: *FieldError of the field date.
func ParseDay(date string, zone *time.Location) (Day, error) {
	at, err := time.Parse(time.DateOnly, date)
	if err != nil || at.Year() < firstDayYear || at.Year() > lastDayYear {
		return Day{}, refuse("date", "must be a day such as 2027-01-31, of the years %d to %d", firstDayYear, lastDayYear)
	}
	y, m, d := at.Date()
	day := Day{Date: date, Zone: zone, From: StartOfDay(y, m, d, zone), To: StartOfDay(y, m, d+1, zone)}
	if !day.From.Before(day.To) {
		before := day.From.Add(-1).Format(time.DateOnly)
		after := day.To.Format(time.DateOnly)
		return Day{}, refuse("date", "is no day of %s: its calendar went from %s to %s", zone, before, after)
	}
	return day, nil
}
