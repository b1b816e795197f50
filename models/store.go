package models

import (
	"errors"
	"time"
)

var (
	// ErrNotFound means MySQL has no such campaign, claim or consumer group.
	ErrNotFound = errors.New("models: not found")
	// ErrBehind means MySQL was restored, or is a replica that lacks commits,
	// and hasn't caught up from the claim streams yet.
	ErrBehind = errors.New("models: mysql is behind what it had")
	// ErrClaimed means the campaign has or had claims.
	ErrClaimed = errors.New("models: claimed from")
	// ErrChanged means the campaign isn't at the version that a change
	// requires.
	ErrChanged = errors.New("models: changed since")
	// ErrInUse means a process reads for the consumer group.
	ErrInUse = errors.New("models: in use")
	// ErrExists means a campaign with this id and other content exists.
	ErrExists = errors.New("models: exists with other content")
)

// Books are a campaign's counters in MySQL, read in one statement.
type Books struct {
	Claimed   int64 // units of live claims that have a row
	SyncedSeq int64 // accepted claims that have a row
	Remaining int64 // units
	Released  int64 // claims ever released or expired
	Sold      int64 // units of all claims that have a row

	LostClaims, LostUnits int64 // sold and lost by Redis; withheld from sale
	// of these, put up for sale again by an operator; not part of LostUnits
	GivenUpUnits int64
	At           time.Time

	// the newest definition, and the newest that Redis is known to have
	Version, AppliedVersion int64

	// InRedis is MySQL's record that Redis holds the campaign. Then only
	// Redis knows its stock.
	InRedis           bool
	Total, LowStockAt int64 // units
	Shards            int   // above 1: Redis holds each shard separately

	ParkedClaims int64 // accepted claims that MySQL refuses; not part of the fields above
	ParkedUnits  int64
}

// SoldEver returns the units ever sold that MySQL knows of: returned, parked
// and lost ones among them.
func (b *Books) SoldEver() int64 { return b.Sold + b.ParkedUnits + b.LostUnits + b.GivenUpUnits }

// Stock is the stock of a campaign that Redis doesn't hold: all of it is in
// MySQL.
func (b *Books) Stock(id string) Stock {
	st := Stock{CampaignID: id, Total: b.Total, Claimed: b.Claimed + b.ParkedUnits, Synced: b.Claimed,
		Parked: b.ParkedUnits, LostClaims: b.LostClaims, LostUnits: b.LostUnits, AsOf: NewTime(b.At)}
	st.Remaining = max(0, st.Total-st.Claimed-st.LostUnits)
	st.Low = b.LowStockAt > 0 && st.Remaining <= b.LowStockAt
	return st
}

// CampaignBooks is a campaign with its counters.
type CampaignBooks struct {
	Campaign Campaign
	Books    Books
	FlushMs  int64 // the slowest flush within FlushesOf; 0: none

	Shards []CampaignBooks // of a sharded campaign, in order; else none
}

// FlushesOf is how long a flush counts as recent.
const FlushesOf = 2 * time.Second
