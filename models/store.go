package models

import (
	"errors"
	"time"
)

var (
	// ErrNotFound says that MySQL has no such campaign or claim.
	ErrNotFound = errors.New("models: not found")
	// ErrExists says that a campaign with the same id and other content exists.
	ErrExists = errors.New("models: exists with other content")
)

// Change is a change of a campaign's definition; nil leaves a field as it is.
type Change struct {
	Total         *int64
	PerUser       *int64
	PerUserPerDay *int64
	StartsAt      *time.Time // the zero time: none
	EndsAt        *time.Time // the zero time: none
	LowStockAt    *int64
	Status        *Status // open or paused
}

// Apply changes c in place. The caller validates the result.
func (ch Change) Apply(c *Campaign) {
	set(&c.Total, ch.Total)
	set(&c.PerUser, ch.PerUser)
	set(&c.PerUserPerDay, ch.PerUserPerDay)
	set(&c.LowStockAt, ch.LowStockAt)
	set(&c.Status, ch.Status)
	setTime(&c.StartsAt, ch.StartsAt)
	setTime(&c.EndsAt, ch.EndsAt)
}

func setTime(field **time.Time, value *time.Time) {
	switch {
	case value == nil:
	case value.IsZero():
		*field = nil
	default:
		*field = value
	}
}

func set[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}

// Books are a campaign's books in MySQL, read in one statement.
type Books struct {
	Claimed   int64 // units of live claims that have their row
	SyncedSeq int64 // accepted claims that have their row
	Remaining int64 // units
	Released  int64 // claims that were released or expired, ever
	At        time.Time

	Version, AppliedVersion int64 // of the definition: the newest, and the newest that Redis is known to have

	ParkedClaims int64 // accepted claims that MySQL refuses; the fields above do not count them
	ParkedUnits  int64
}
