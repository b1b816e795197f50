package lua

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"dibs/models"
)

// limit bounds the units that one user may hold of a campaign: in all, or of each bucket. A bucket is a stretch of time.
type limit struct {
	field   string                         // of a campaign's state in Redis; the column in MySQL and the field of JSON have its name
	value   func(c *models.Campaign) int64 // units; 0 is no limit
	code    int64                          // of the refusal, in claim.lua
	refusal models.Outcome
	bucket  func(day, ms int64) int64 // number of the bucket that a moment lies in, see LIMITS in claim.lua
	per     string                    // what a bucket is called; "" is the one bucket that holds all time
}

// limits are the limits of a user. LIMITS in claim.lua lists the same in the same order; a test compares the two. The first one
// counts all that a user holds.
var limits = [...]limit{
	{
		field: "per_user", value: func(c *models.Campaign) int64 { return c.PerUser },
		code: 8, refusal: models.OutcomeUserLimit,
		bucket: func(_, _ int64) int64 { return 0 },
	},
	{
		field: "per_user_per_day", value: func(c *models.Campaign) int64 { return c.PerUserPerDay },
		code: 9, refusal: models.OutcomeUserDayLimit,
		bucket: func(day, _ int64) int64 { return day }, per: "day",
	},
}

// LimitRefusals are what the limits of a user refuse with.
func LimitRefusals() []models.Outcome {
	refusals := make([]models.Outcome, len(limits))
	for i := range limits {
		refusals[i] = limits[i].refusal
	}
	return refusals
}

// buckets are the buckets that a claim counts in, one for each limit.
type buckets [len(limits)]int64

// String is what release.lua reads.
func (b buckets) String() string {
	var text []byte
	for i := range b {
		text = strconv.AppendInt(append(text, ';'), b[i], 10)
	}
	return string(text[1:])
}

// bucketFinder finds the buckets that claim.lua counted a claim in. It remembers the days around the last moment.
type bucketFinder struct {
	zone  *time.Location
	table days
}

func (f *bucketFinder) of(at time.Time) (b buckets) {
	ms := at.UnixMilli()
	day := f.day(ms)
	for i := range limits {
		b[i] = limits[i].bucket(day, ms)
	}
	return b
}

// day picks the day as claim.lua does.
func (f *bucketFinder) day(ms int64) int64 {
	if ms < f.table.starts[daysBefore] || ms >= f.table.starts[daysBefore+1] {
		f.table = daysAround(time.UnixMilli(ms), f.zone)
	}
	for i := len(f.table.starts) - 2; i > 0; i-- {
		if ms >= f.table.starts[i] {
			return f.table.first + int64(i)
		}
	}
	return f.table.first
}

// userRecord is what one user holds of a campaign: for each limit the user's newest bucket, and the units in it. Redis holds it as
// "bucket:units" for each limit, in the order of limits, joined by ";". The zero value is a user without claims.
type userRecord [len(limits)]count

type count struct{ bucket, units int64 }

// notCounted is the bucket of a limit that a record is older than.
const notCounted = -1

// add counts a claim of some units, as claim.lua does: a user's buckets never go back.
func (r *userRecord) add(b buckets, units int64) {
	for i := range r {
		if b[i] > r[i].bucket {
			r[i] = count{bucket: b[i]}
		}
		r[i].units += units
	}
}

func (r *userRecord) appendTo(text []byte) []byte {
	for i := range r {
		if i > 0 {
			text = append(text, ';')
		}
		text = strconv.AppendInt(text, r[i].bucket, 10)
		text = strconv.AppendInt(append(text, ':'), r[i].units, 10)
	}
	return text
}

var errUserRecord = errors.New("no record of a user")

func parseUserRecord(text string) (r userRecord, err error) {
	i := 0
	for pair := range strings.SplitSeq(text, ";") {
		bucketText, unitsText, found := strings.Cut(pair, ":")
		bucket, bucketErr := strconv.ParseUint(bucketText, 10, 63)
		units, unitsErr := strconv.ParseUint(unitsText, 10, 63)
		if !found || bucketErr != nil || unitsErr != nil || max(len(bucketText), len(unitsText)) > digitsMax {
			return r, errUserRecord
		}
		if i < len(r) { // what follows is of limits that there are no more
			r[i] = count{int64(bucket), int64(units)}
		}
		i++
	}
	for ; i < len(r); i++ {
		r[i].bucket = notCounted
	}
	return r, nil
}

// difference tells by which limit the record that Redis holds of a user differs from r; "" is by none. Two buckets without units
// are equal to every claim that comes.
func (r *userRecord) difference(held *userRecord) string {
	for i := range r {
		want := r[i]
		has := held[i]
		per := limits[i].per
		switch {
		case has.bucket == notCounted, has.bucket == want.bucket && has.units == want.units, has.units == 0 && want.units == 0:
		case per == "":
			return fmt.Sprintf("holds %d units in redis, the rows are of %d", has.units, want.units)
		default:
			return fmt.Sprintf("holds %d units of %s %d in redis, the rows are of %d on %s %d",
				has.units, per, has.bucket, want.units, per, want.bucket)
		}
	}
	return ""
}

// UserRecords add up what each user of a campaign holds, as Redis should hold it, from the claims that MySQL holds. They are for one
// goroutine.
type UserRecords struct {
	buckets bucketFinder
	byUser  map[string]*userRecord
}

// NewUserRecords begins with no claim; users is about how many there will be.
func NewUserRecords(c *models.Campaign, users int64) (*UserRecords, error) {
	zone, err := c.Location()
	if err != nil {
		return nil, fmt.Errorf("lua: campaign %s: %w", c.ID, err)
	}
	return &UserRecords{buckets: bucketFinder{zone: zone}, byUser: make(map[string]*userRecord, min(users, usersGuessMost))}, nil
}

// usersGuessMost bounds the room that is made for users before they are seen.
const usersGuessMost = 1 << 20

// Add counts a claim. Claims come in order of seq. A claim that is not live begins its bucket, and counts nothing in it.
func (u *UserRecords) Add(p *ClaimRecord) {
	r := u.byUser[string(p.UserID)]
	if r == nil { // a user whose claims are all released has a record too
		r = new(userRecord)
		u.byUser[string(p.UserID)] = r
	}
	units := p.Quantity
	if !p.Live {
		units = 0
	}
	r.add(u.buckets.of(p.At), units)
}

// Compare tells how the record that Redis holds of a user differs from the user's claims; "" is not at all.
func (u *UserRecords) Compare(user, record string) string {
	held, err := parseUserRecord(record)
	if err != nil {
		return fmt.Sprintf("user %s has a record in redis that reads %.40q", user, record)
	}
	want := u.byUser[user]
	if want == nil {
		want = new(userRecord)
	}
	if difference := want.difference(&held); difference != "" {
		return "user " + user + " " + difference
	}
	return ""
}

// Exceeds names the limit of the campaign that a user's claims exceed; "" is none.
func (u *UserRecords) Exceeds(user string, c *models.Campaign) string {
	r := u.byUser[user]
	for i := range limits {
		if most := limits[i].value(c); r != nil && most > 0 && r[i].units > most {
			return limits[i].field
		}
	}
	return ""
}

// Units are the users and the units that each holds, in no order.
func (u *UserRecords) Units() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for user, r := range u.byUser {
			if !yield(user, r[0].units) {
				return
			}
		}
	}
}
