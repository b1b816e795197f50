package models

import (
	"errors"
	"time"
)

var (
	// ErrNotFound says that MySQL has no such campaign, claim or consumer
	// group.
	ErrNotFound = errors.New("models: not found")
	// ErrBehind says that MySQL was restored, or is a replica that lacks
	// commits, and has not read on from the claim streams yet.
	ErrBehind = errors.New("models: mysql is behind what it had")
	// ErrClaimed says that a campaign has or had claims.
	ErrClaimed = errors.New("models: claimed from")
	// ErrChanged says that a campaign is not of the version that a change is
	// for.
	ErrChanged = errors.New("models: changed since")
	// ErrInUse says that a process reads for the consumer group.
	ErrInUse = errors.New("models: in use")
	// ErrExists says that a campaign with the same id and other content exists.
	ErrExists = errors.New("models: exists with other content")
)

// Books are a campaign's books in MySQL, read in one statement.
type Books struct {
	Claimed   int64 // units of live claims that have their row
	SyncedSeq int64 // accepted claims that have their row
	Remaining int64 // units
	Released  int64 // claims that were released or expired, ever
	Sold      int64 // units of all claims that have their row

	LostClaims, LostUnits int64 // that Redis sold and lost, and that are withheld
	// of these, that an operator put up for sale again; LostUnits does not
	// count them
	GivenUpUnits int64
	At           time.Time

	// of the definition: the newest, and the newest that Redis is known to have
	Version, AppliedVersion int64

	// InRedis tells that Redis holds the campaign, by what MySQL recorded: then
	// Redis alone knows its stock.
	InRedis           bool
	Total, LowStockAt int64 // units
	Shards            int   // above 1: Redis holds its shards, each by itself

	ParkedClaims int64 // accepted claims that MySQL refuses; the fields above do not count them
	ParkedUnits  int64
}

// Stock is what the books say of a campaign that Redis does not hold: all of it
// is in MySQL.
func (b *Books) Stock(id string) Stock {
	st := Stock{CampaignID: id, Total: b.Total, Claimed: b.Claimed + b.ParkedUnits, Synced: b.Claimed,
		Parked: b.ParkedUnits, LostClaims: b.LostClaims, LostUnits: b.LostUnits, AsOf: NewTime(b.At)}
	st.Remaining = max(0, st.Total-st.Claimed-st.LostUnits)
	st.Low = b.LowStockAt > 0 && st.Remaining <= b.LowStockAt
	return st
}

// CampaignBooks is a campaign with its books.
type CampaignBooks struct {
	Campaign Campaign
	Books    Books
	FlushMs  int64 // the slowest flush of the last FlushesOf; 0: there was none

	Shards []CampaignBooks // of a campaign of several shards, in order; else none
}

// FlushesOf is how long a flush counts as one of the last.
const FlushesOf = 2 * time.Second
