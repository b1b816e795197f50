package models

import (
	"cmp"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ByUser is the subject that every claim has.
const ByUser = "user"

// Per is the window of time over which a limit counts, in the campaign's time
// zone.
type Per string

// The windows of a limit.
const (
	PerAll   Per = "all"
	PerHour  Per = "hour" // counted from the start of the day, so a day of 25 hours has 25
	PerDay   Per = "day"
	PerWeek  Per = "week" // from Monday
	PerMonth Per = "month"
)

// Pers are all windows.
var Pers = []Per{PerAll, PerHour, PerDay, PerWeek, PerMonth}

// LimitsMax bounds a campaign's limits, including per_user and
// per_user_per_day.
const LimitsMax = 8

// Limit bounds the units that one subject may claim in each window.
type Limit struct {
	By  string `json:"by"` // ByUser, or the name of a subject that claims carry
	Per Per    `json:"per"`
	Max int64  `json:"max"` // units

	// Added is the number of the definition that added the limit, see
	// Campaign.Changes; 0 is the first. A limit that is removed and added
	// again counts from zero.
	Added int64 `json:"added,omitempty"`
	// FromMs is when counting starts, in milliseconds since 1970; 0 counts
	// all claims.
	FromMs int64 `json:"from_ms,omitempty"`
}

// String is the form that ParseLimit reads.
func (l LimitJSON) String() string { return fmt.Sprintf("%s:%s:%d", l.By, l.Per, l.Max) }

// ParseLimit reads a limit such as device:day:1. Validate checks whether a
// campaign may have it.
func ParseLimit(text string) (LimitJSON, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return LimitJSON{}, fmt.Errorf("%w: a limit reads subject:window:units, such as device:day:1, not %q", ErrID, text)
	}
	units, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return LimitJSON{}, fmt.Errorf("%w: the units of the limit %q are no whole number", ErrID, text)
	}
	return LimitJSON{By: parts[0], Per: Per(parts[1]), Max: units}, nil
}

// Limits are a campaign's limits without per_user and per_user_per_day, see
// Campaign.AllLimits.
type Limits []Limit

// LimitJSON is a limit in the API.
type LimitJSON struct {
	By          string `json:"by" doc:"user, or the name of a subject that claims carry" pattern:"^[a-z_]{1,32}$"`
	Per         Per    `json:"per" enum:"all,hour,day,week,month" doc:"in the campaign's time_zone; a week starts on Monday"`
	Max         int64  `json:"max" minimum:"1" maximum:"1000000000000" doc:"units"`
	CountedFrom *Time  `json:"counted_from,omitempty" doc:"earlier claims do not count; absent: all claims count"`
}

// JSON returns the limits for the API.
func (ls Limits) JSON() []LimitJSON {
	var all []LimitJSON
	for _, l := range ls {
		j := LimitJSON{By: l.By, Per: l.Per, Max: l.Max}
		if l.FromMs > 0 {
			j.CountedFrom = new(TimeFromMs(l.FromMs))
		}
		all = append(all, j)
	}
	return all
}

// Value writes the limits as MySQL stores them.
func (ls Limits) Value() (driver.Value, error) {
	if len(ls) == 0 {
		return "", nil
	}
	text, err := json.Marshal(ls)
	return string(text), err
}

// Scan reads what Value wrote.
func (ls *Limits) Scan(value any) error {
	*ls = nil
	return scanJSON(value, ls)
}

// scanJSON reads a JSON column. NULL and "" leave into unchanged.
func scanJSON(value, into any) error {
	var text []byte
	switch v := value.(type) {
	case string:
		text = []byte(v)
	case []byte:
		text = v
	case nil:
	default:
		return fmt.Errorf("models: a column of JSON is a %T", value)
	}
	if len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("models: column of JSON: %w", err)
	}
	return nil
}

// isSame reports whether two limits bound the same thing.
func (l Limit) isSame(other Limit) bool { return l.By == other.By && l.Per == other.Per }

// AllLimits returns all limits, those of per_user and per_user_per_day first.
func (c *Campaign) AllLimits() Limits {
	var all Limits
	if c.PerUser > 0 {
		all = append(all, Limit{By: ByUser, Per: PerAll, Max: c.PerUser})
	}
	if c.PerUserPerDay > 0 {
		all = append(all, Limit{By: ByUser, Per: PerDay, Max: c.PerUserPerDay})
	}
	return append(all, c.Limits...)
}

// SetLimits replaces all limits. Those that per_user and per_user_per_day
// stand for go to those fields.
func (c *Campaign) SetLimits(all Limits) {
	c.PerUser = 0
	c.PerUserPerDay = 0
	c.Limits = nil
	for _, l := range all {
		switch {
		case l.isSame(Limit{By: ByUser, Per: PerAll}) && c.PerUser == 0:
			c.PerUser = l.Max
		case l.isSame(Limit{By: ByUser, Per: PerDay}) && c.PerUserPerDay == 0:
			c.PerUserPerDay = l.Max
		default:
			c.Limits = append(c.Limits, l)
		}
	}
	slices.SortStableFunc(c.Limits, func(a, b Limit) int {
		return cmp.Or(cmp.Compare(a.By, b.By), cmp.Compare(slices.Index(Pers, a.Per), slices.Index(Pers, b.Per)))
	})
}

// ContinueFrom lets limits that existed before keep counting. New ones count
// claims from fromMs on.
func (ls Limits) ContinueFrom(before Limits, definition, fromMs int64) {
	for i := range ls {
		l := &ls[i]
		at := slices.IndexFunc(before, l.isSame)
		if at < 0 {
			l.Added = definition
			l.FromMs = fromMs
			continue
		}
		l.Added = before[at].Added
		l.FromMs = before[at].FromMs
	}
}

// definition returns the limits as their creator chose them.
func (ls Limits) definition() Limits {
	own := slices.Clone(ls)
	for i := range own {
		own[i].Added = 0
		own[i].FromMs = 0
	}
	return own
}

func (c *Campaign) validateLimits() error {
	all := c.AllLimits()
	if len(all) > LimitsMax {
		return refuse("limits", "must be at most %d, per_user and per_user_per_day included", LimitsMax)
	}
	names := make(map[string]bool)
	for i, l := range all {
		switch {
		case !IsSubjectName(l.By):
			return refuse("limits", "by must be user or a name of 1 to %d of a-z and _", SubjectNameLength)
		case !slices.Contains(Pers, l.Per):
			return refuse("limits", "per must be all, hour, day, week or month")
		case l.Max < 1 || l.Max > UnitsMax:
			return refuse("limits", "max must be 1 to %d", UnitsMax)
		case slices.ContainsFunc(all[:i], l.isSame):
			return refuse("limits", "by %s per %s is there twice", l.By, l.Per)
		case c.Shards > 1 && l.By != c.ShardSubject():
			return refuse("limits", "of a campaign of several shards must all be by %s, as its shard_by says:"+
				" a shard does not know what another counts", c.ShardSubject())
		}
		names[l.By] = l.By != ByUser
	}
	delete(names, ByUser)
	if len(names) > SubjectsMax {
		return refuse("limits", "must name at most %d subjects", SubjectsMax)
	}
	return nil
}
