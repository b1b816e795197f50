package lua

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"dibs/models"
)

var errUserRecord = errors.New("no record of a user")

// Compare says how the record that Redis holds under a field of its hash of users differs from the claims; "" is not at all.
func (u *UserRecords) Compare(field, text string) string {
	limits := u.limits.of(field)
	held, err := parseRecordOf(limits, text)
	if err != nil {
		return fmt.Sprintf("%s has a record in redis that reads %.40q", subjectOf(field), text)
	}
	want := u.byField[field]
	if want == nil {
		want = newRecord(limits)
	}
	if difference := want.difference(held, limits); difference != "" {
		return subjectOf(field) + " " + difference
	}
	return ""
}

// subjectOf says whose record the field of a hash of users is.
func subjectOf(field string) string {
	name, value, found := strings.Cut(field, subjectMark)
	if !found {
		return models.ByUser + " " + field
	}
	return name + " " + value
}

// parseRecordOf reads the record of a subject with these limits. Counts of limits that are removed are left out.
func parseRecordOf(limits []models.Limit, text string) (record, error) {
	r := newRecord(limits)
	plain := 0
	for i := range limits {
		if isPlain(&limits[i]) {
			plain++
		}
	}
	pairs := strings.Split(text, ";")
	if plain == 0 {
		if pairs[0] != "" {
			return nil, errUserRecord
		}
		pairs = pairs[1:]
	}
	for n, pair := range pairs {
		at := n
		if n >= plain {
			tag, rest, found := strings.Cut(pair, ".")
			if !found {
				return nil, errUserRecord
			}
			pair = rest
			at = slices.IndexFunc(limits, func(l models.Limit) bool { return !isPlain(&l) && tagOf(&l) == tag })
		}
		windowText, unitsText, found := strings.Cut(pair, ":")
		window, windowErr := strconv.ParseUint(windowText, 10, 63)
		units, unitsErr := strconv.ParseUint(unitsText, 10, 63)
		if !found || windowErr != nil || unitsErr != nil || max(len(windowText), len(unitsText)) > digitsMax {
			return nil, errUserRecord
		}
		if at >= 0 {
			r[at] = count{int64(window), int64(units)}
		}
	}
	if len(pairs) < plain {
		return nil, errUserRecord
	}
	return r, nil
}

// difference says by which limit the record that Redis holds of a subject differs from r; "" is by none. Two windows without units are
// equal to every claim that comes.
func (r record) difference(held record, limits []models.Limit) string {
	for i := range r {
		want := r[i]
		has := held[i]
		switch per := limits[i].Per; {
		case has == want, has.units == 0 && want.units == 0:
		case per == models.PerAll:
			return fmt.Sprintf("holds %d units in redis, the rows are of %d", has.units, want.units)
		default:
			return fmt.Sprintf("holds %d units of %s %d in redis, the rows are of %d on %s %d",
				has.units, per, has.window, want.units, per, want.window)
		}
	}
	return ""
}

// Units are the fields of the hash of users and the units that their first limit counts, in no order.
func (u *UserRecords) Units() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for field, r := range u.byField {
			if !yield(field, r[0].units) {
				return
			}
		}
	}
}
