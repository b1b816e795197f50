package calendar

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// rfc3339 rejects what time.Parse lets through: one-digit hours, commas,
// offsets of a day.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

var errTime = errors.New("calendar: no RFC 3339 time")

// ParseTime reads exactly RFC 3339, with t and z in either case. It refuses
// a time that has no year of four digits in UTC.
func ParseTime(text string) (time.Time, error) {
	if !rfc3339.MatchString(text) {
		return time.Time{}, errTime
	}
	at, err := time.Parse(time.RFC3339, strings.ToUpper(text))
	if year := at.UTC().Year(); err == nil && (year < 0 || year > 9999) {
		return time.Time{}, errTime
	}
	return at, err
}

// TimeError says what a text must be instead.
type TimeError string

// Error implements error.
func (r TimeError) Error() string { return string(r) }

func refuse(format string, args ...any) error { return TimeError(fmt.Sprintf(format, args...)) }
