package models

import (
	"cmp"
	"reflect"
	"slices"
	"time"
)

// Kind is what a campaign hands out.
type Kind string

// The kinds of campaign.
const (
	KindCoupon Kind = "coupon" // a number of equal units
	KindPacket Kind = "packet" // a list of amounts
)

// Status is whether a campaign takes claims, apart from its window and its
// stock.
type Status string

// The states of a campaign. A closed campaign stays closed.
const (
	StatusOpen   Status = "open"
	StatusPaused Status = "paused"
	StatusClosed Status = "closed"
)

// Residency is where the stock of a campaign is.
type Residency string

// The states of residency, by the entries of the claim stream that MySQL has
// applied.
const (
	ResidencyNone     Residency = "none"     // never loaded into Redis
	ResidencyResident Residency = "resident" // loaded into Redis, which decides
	ResidencyEvicted  Residency = "evicted"  // taken out of Redis
)

const (
	// UnitsMax bounds total, limits and low_stock_at: well inside the 2^53 that
	// Lua's numbers hold exactly.
	UnitsMax int64 = 1_000_000_000_000
	// QuantityMax bounds the units of one claim.
	QuantityMax int64 = 1_000_000
	// HoldMax bounds hold_for.
	HoldMax = 366 * 24 * time.Hour
	// NameLength bounds the name of a campaign, in characters.
	NameLength = 200
)

// What the public may read of a campaign, without a token; "" is nothing.
const (
	PublicLevel = "level" // whether many, few or none are left
	PublicCount = "count" // how many
)

// Campaign is the definition of a campaign and its books, or a shard of one
// with its own: a row of MySQL's view defined_lots. MySQL is the authority for
// the definition. Units are counted in units, times are UTC at millisecond
// precision.
type Campaign struct {
	ID     string `gorm:"primaryKey"`
	Kind   Kind
	Name   string
	Status Status
	// which claim stream; from the id, see lua.PartitionOf
	Partition int `gorm:"column:partition_no"`
	// Shards is over how many shards the campaign is spread, 1 for most. Stored
	// digests of campaigns of one shard lack it.
	Shards int `gorm:"default:1" json:",omitempty"` //nolint:tagliatelle // as the fields that have no tag

	Total         int64
	PerUser       int64 // 0: no limit
	PerUserPerDay int64 // 0: no limit
	// Limits are the other limits, see AllLimits. Stored digests of campaigns
	// without them lack the field.
	Limits Limits `json:",omitempty"` //nolint:tagliatelle // as the fields that have no tag
	// ShardBy is the subject whose value decides about the shard of a claim; ""
	// is its user.
	ShardBy    string `json:",omitempty"` //nolint:tagliatelle // as the fields that have no tag
	TimeZone   string
	StartsAt   *time.Time
	EndsAt     *time.Time
	LowStockAt int64
	Currency   string
	SenderID   string
	HoldForMs  int64
	PauseID    *string `json:"-"` // the last pause that Redis was told of while MySQL was away
	// A hold lasts no longer than HoldMaxMs, however often it is extended; 0:
	// there are none. Stored digests lack it where it is the usual.
	HoldMaxMs int64 `json:",omitempty"` //nolint:tagliatelle // as the fields that have no tag
	// Public is what anybody may read: PublicLevel, PublicCount or nothing.
	// Stored digests of campaigns without it lack the field.
	Public string `json:",omitempty"` //nolint:tagliatelle // as the fields that have no tag

	// Version identifies the last change of the definition: 1, then
	// milliseconds since 1970, rising. AppliedVersion is the last version that
	// Redis is known to hold.
	Version        int64
	AppliedVersion int64
	// Changes counts the definitions that there were, from 1: people read it,
	// nothing is decided by it. Digests that are stored lack it.
	Changes int64 `gorm:"default:1" json:"-"`
	// Epoch is the number of the last load into Redis; 0 before the first.
	Epoch int64
	// LoadAttempts counts the loads that were started; the next epoch comes
	// from it.
	LoadAttempts int64

	Residency   Residency `gorm:"default:none"`
	ResidencyAt *time.Time
	// Generation is that of its partition when it was loaded last.
	Generation int64 `json:"-"`

	// What processes saw of the lot in Redis when its partition lost data, or
	// when they found less there. They only rise.
	SeenEpoch, SeenSeq, SeenUnits int64 `json:"-"`
	// What was sold and lost: it has no row. Its units are not for sale, unless
	// an operator gives them up.
	LostClaims                  int64
	LostUnits                   int64 `json:"-"`
	GivenUpClaims, GivenUpUnits int64 `json:"-"`

	// The counters, moved by the writer in the transaction that inserts the
	// claims. The database computes Remaining from Total, RedisTotal and
	// Claimed. It is never below 0, and of a campaign of one shard never below
	// what Redis says. Of several shards it shows a lowered total before they
	// have it.
	Remaining int64 `gorm:"->"` // units
	Claimed   int64 // units of live claims
	SyncedSeq int64 // accepted claims that have their row
	Sold      int64 `json:"-"` // units of these, released or not

	// claims that were released or expired, ever; moved in the transaction that
	// did it
	ReleasedClaims int64

	// What was moved out of claims; the counters above count it still. It is no
	// part of the digests that are stored.
	ArchivedClaims   int64 `json:"-"`
	ArchivedUnits    int64 `json:"-"` // of live claims
	ArchivedSold     int64 `json:"-"` // units of all of them
	ArchivedReleased int64 `json:"-"` // claims

	// RedisTotal is what Redis may still sell by while a lower Total is on its
	// way to it; else 0.
	RedisTotal int64 `json:"-"`

	CreatedAt time.Time
	UpdatedAt time.Time
}

// TableName names the view for gorm. Its tables are written to by package
// campaigns.
func (Campaign) TableName() string { return "defined_lots" }

// HoldFor is how long a claim may stay unredeemed; 0 is no limit.
func (c *Campaign) HoldFor() time.Duration { return time.Duration(c.HoldForMs) * time.Millisecond }

// Location is the zone in which the windows of limits begin.
func (c *Campaign) Location() (*time.Location, error) { return LoadZone(c.TimeZone) }

// Definition is the part of a campaign that its creator chose.
func (c *Campaign) Definition() Campaign {
	d := Campaign{
		ID: c.ID, Kind: c.Kind, Name: c.Name, Status: c.Status, Total: c.Total, PerUser: c.PerUser, PerUserPerDay: c.PerUserPerDay,
		TimeZone: c.TimeZone, StartsAt: c.StartsAt, EndsAt: c.EndsAt, LowStockAt: c.LowStockAt, Currency: c.Currency,
		SenderID: c.SenderID, HoldForMs: c.HoldForMs, HoldMaxMs: c.HoldMaxMs, Limits: c.Limits.definition(), ShardBy: c.ShardBy, Public: c.Public,
	}
	if c.Shards > 1 {
		d.Shards = c.Shards
	}
	return d
}

// DefinitionJSON is what people have decided of a campaign, as JSON: in the
// API, in the console and in the audit log.
type DefinitionJSON struct {
	Kind          Kind        `json:"kind" enum:"coupon,packet"`
	Name          string      `json:"name,omitempty"`
	Status        Status      `json:"status" enum:"open,paused,closed"`
	Total         int64       `json:"total"`
	PerUser       int64       `json:"per_user,omitempty"`
	PerUserPerDay int64       `json:"per_user_per_day,omitempty"`
	Limits        []LimitJSON `json:"limits,omitempty" doc:"all limits; per_user and per_user_per_day are short for two of them"`
	TimeZone      string      `json:"time_zone"`
	StartsAt      *Time       `json:"starts_at,omitempty"`
	EndsAt        *Time       `json:"ends_at,omitempty"`
	LowStockAt    int64       `json:"low_stock_at,omitempty"`
	Currency      string      `json:"currency,omitempty"`
	SenderID      string      `json:"sender_id,omitempty"`
	HoldFor       string      `json:"hold_for,omitempty"`
	HoldMax       string      `json:"hold_max,omitempty"`
	Shards        int         `json:"shards,omitempty" doc:"number of shards; absent is one"`
	ShardBy       string      `json:"shard_by,omitempty" doc:"the subject whose value decides the shard of a claim; absent is its user"`
	Public        string      `json:"public,omitempty" enum:"level,count" doc:"what anybody may read of it, see /v1/campaigns/{id}/public; absent: nothing"`
	Version       int64       `json:"version" doc:"number of the change, from 1"`
}

// DefinitionJSON is the definition of the campaign as JSON.
func (c *Campaign) DefinitionJSON() DefinitionJSON {
	d := DefinitionJSON{
		Kind: c.Kind, Name: c.Name, Status: c.Status, Total: c.Total, PerUser: c.PerUser, PerUserPerDay: c.PerUserPerDay,
		TimeZone: c.TimeZone, LowStockAt: c.LowStockAt, Currency: c.Currency, SenderID: c.SenderID, Version: c.Changes,
		Limits: c.AllLimits().JSON(), ShardBy: c.ShardBy, Public: c.Public,
	}
	if c.StartsAt != nil {
		d.StartsAt = new(NewTime(*c.StartsAt))
	}
	if c.EndsAt != nil {
		d.EndsAt = new(NewTime(*c.EndsAt))
	}
	if c.HoldForMs > 0 {
		d.HoldFor = c.HoldFor().String()
	}
	if c.HoldMaxMs > 0 {
		d.HoldMax = (time.Duration(c.HoldMaxMs) * time.Millisecond).String()
	}
	if c.IsSharded() {
		d.Shards = c.Shards
	}
	return d
}

// Change is a change of a campaign's definition; nil leaves a field as it is.
type Change struct {
	// IfVersion has the change made only to a campaign whose Version is among
	// these; nil is any.
	IfVersion []int64

	Name          *string
	Public        *string
	Total         *int64
	PerUser       *int64
	PerUserPerDay *int64
	Limits        *Limits    // replace all limits; PerUser and PerUserPerDay add to them
	StartsAt      *time.Time // the zero time is none
	EndsAt        *time.Time // the zero time is none
	LowStockAt    *int64
	Status        *Status // open, paused; closed is for ever
}

// Pauses reports whether pausing is all that it does.
func (ch Change) Pauses() bool {
	if ch.Status == nil || *ch.Status != StatusPaused {
		return false
	}
	ch.Status = nil
	ch.IfVersion = nil
	return reflect.DeepEqual(ch, Change{})
}

// Fits reports whether the change may be made to a campaign of this version.
func (ch Change) Fits(version int64) bool {
	return ch.IfVersion == nil || slices.Contains(ch.IfVersion, version)
}

// Apply changes c in place. The caller validates the result.
func (ch Change) Apply(c *Campaign) {
	set(&c.Name, ch.Name)
	set(&c.Public, ch.Public)
	set(&c.Total, ch.Total)
	if ch.Limits != nil {
		c.SetLimits(*ch.Limits)
	}
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

// Validate returns nil, or a *FieldError for the first field that is not valid.
func (c *Campaign) Validate() error {
	if err := cmp.Or(CheckCampaignID(c.ID), CheckSegment(c.ID)); err != nil {
		return refuse("id", "%s", reason(err))
	}
	if c.Kind != KindCoupon && c.Kind != KindPacket {
		return refuse("kind", "must be coupon or packet")
	}
	if c.Status != StatusOpen && c.Status != StatusPaused && c.Status != StatusClosed {
		return refuse("status", "must be open or paused")
	}
	if n := len([]rune(c.Name)); n > NameLength {
		return refuse("name", "must be at most %d characters", NameLength)
	}
	if c.Public != "" && c.Public != PublicLevel && c.Public != PublicCount {
		return refuse("public", "must be false, level or count")
	}
	if err := c.validateShards(); err != nil {
		return err
	}
	if err := c.validateUnits(); err != nil {
		return err
	}
	if err := c.validateLimits(); err != nil {
		return err
	}
	return c.validateTimes()
}

func (c *Campaign) validateUnits() error {
	for _, f := range []struct {
		name  string
		value int64
	}{{"total", c.Total}, {"per_user", c.PerUser}, {"per_user_per_day", c.PerUserPerDay}, {"low_stock_at", c.LowStockAt}} {
		if f.value < 0 || f.value > UnitsMax {
			return refuse(f.name, "must be 0 to %d", UnitsMax)
		}
	}
	return nil
}
