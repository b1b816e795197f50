package models

import (
	"errors"
	"time"
)

var (
	// ErrNotFound says that MySQL has no such campaign or claim.
	ErrNotFound = errors.New("models: not found")
	// ErrChanged says that a campaign is not of the version that a change is for.
	ErrChanged = errors.New("models: changed since")
	// ErrExists says that a campaign with the same id and other content exists.
	ErrExists = errors.New("models: exists with other content")
)

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

// CampaignBooks is a campaign with its books.
type CampaignBooks struct {
	Campaign Campaign
	Books    Books
}
