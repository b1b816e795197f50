package models

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"dibs/models/calendar"
)

// Kind is what a campaign hands out.
type Kind string

// The kinds of campaign.
const (
	KindCoupon Kind = "coupon" // a number of equal units
	KindPacket Kind = "packet" // a list of amounts
)

// Status says whether a campaign takes claims, apart from its window and
// stock.
type Status string

// The states of a campaign. A closed campaign stays closed.
const (
	StatusOpen   Status = "open"
	StatusPaused Status = "paused"
	StatusClosed Status = "closed"
)

// Residency says where the stock of a campaign is.
type Residency string

// The states of residency, as of the stream entries that MySQL has applied.
const (
	ResidencyNone     Residency = "none"     // never loaded into Redis
	ResidencyResident Residency = "resident" // in Redis, which decides
	ResidencyEvicted  Residency = "evicted"  // removed from Redis
)

const (
	// UnitsMax bounds total, limits and low_stock_at. Lua's numbers are exact
	// up to 2^53, which is far above.
	UnitsMax int64 = 1_000_000_000_000
	// QuantityMax bounds the units of one claim.
	QuantityMax int64 = 1_000_000
	// HoldMax bounds hold_for.
	HoldMax = 366 * 24 * time.Hour
	// NameLength bounds a campaign's name, in characters.
	NameLength = 200
)

// What anyone may read of a campaign without a token; "" is nothing.
const (
	PublicLevel = "level" // whether many, few or none are left
	PublicCount = "count" // how many
)

// Campaign is a campaign's definition with its counters, or one shard with
// its own counters: a row of MySQL's view defined_lots. MySQL is the
// authority for the definition. Times are UTC, in milliseconds.
type Campaign struct {
	ID     string `gorm:"primaryKey"`
	Kind   Kind
	Name   string
	Status Status
	// the number of its claim stream, computed from the id by lua.PartitionOf
	Partition int `gorm:"column:partition_no"`
	// Shards is the number of shards, 1 for most campaigns. It is omitted for
	// one shard because older digests lack the field.
	Shards int `gorm:"default:1" json:",omitempty"` //nolint:tagliatelle // as the fields that have no tag

	Total         int64
	PerUser       int64 // 0: no limit
	PerUserPerDay int64 // 0: no limit
	// Limits are those beside PerUser and PerUserPerDay, see AllLimits. They
	// are omitted when empty because older digests lack the field.
	Limits Limits `json:",omitempty"` //nolint:tagliatelle // as the fields that have no tag
	// ShardBy is the subject whose value selects a claim's shard; "" is the
	// user.
	ShardBy    string `json:",omitempty"` //nolint:tagliatelle // as the fields that have no tag
	TimeZone   string
	StartsAt   *time.Time
	EndsAt     *time.Time
	LowStockAt int64
	Currency   string
	SenderID   string
	HoldForMs  int64
	PauseID    *string `json:"-"` // the last pause that was made in Redis while MySQL was unavailable
	// HoldMaxMs bounds a hold with all its extensions; 0: campaign without
	// holds. Stored digests lack it if it is the default.
	HoldMaxMs int64 `json:",omitempty"` //nolint:tagliatelle // as the fields that have no tag
	// Public is what anyone may read: PublicLevel, PublicCount or "". Older
	// digests lack the field.
	Public string `json:",omitempty"` //nolint:tagliatelle // as the fields that have no tag

	// Version identifies the last change of the definition: 1 at first, then
	// rising milliseconds since 1970. AppliedVersion is the last version that
	// Redis is known to hold.
	Version        int64
	AppliedVersion int64
	// Changes numbers the definitions from 1, for people only. Stored digests
	// lack it.
	Changes int64 `gorm:"default:1" json:"-"`
	// Epoch numbers the loads into Redis; 0 before the first.
	Epoch int64
	// LoadAttempts counts loads that were started. The next epoch comes from
	// it.
	LoadAttempts int64

	Residency   Residency `gorm:"default:none"`
	ResidencyAt *time.Time
	// Generation is that of the partition at the last load.
	Generation int64 `json:"-"`

	// What processes had seen of the lot in Redis when its partition lost
	// data, or when Redis held less than that. They only rise.
	SeenEpoch, SeenSeq, SeenUnits int64 `json:"-"`
	// What was sold and then lost, without a row. These units aren't for sale
	// until an operator gives the lost claims up.
	LostClaims                  int64
	LostUnits                   int64 `json:"-"`
	GivenUpClaims, GivenUpUnits int64 `json:"-"`

	// Counters. The writer moves them in the transaction that inserts the
	// claims. MySQL computes Remaining from Total, RedisTotal and Claimed. It
	// is never negative. With one shard it is never below Redis' figure. With
	// several, it shows a lowered total before the shards have it.
	Remaining int64 `gorm:"->"` // units
	Claimed   int64 // units of live claims
	SyncedSeq int64 // accepted claims that have a row
	Sold      int64 `json:"-"` // units of these, even if released

	// claims ever released or expired; counted in the transaction that does
	// it
	ReleasedClaims int64

	// Rows moved from claims to the archive. The counters above include them.
	// Stored digests don't.
	ArchivedClaims   int64 `json:"-"`
	ArchivedUnits    int64 `json:"-"` // of live claims
	ArchivedSold     int64 `json:"-"` // units of all of them
	ArchivedReleased int64 `json:"-"` // claims

	// RedisTotal is the total that Redis still sells by until it has a
	// lowered Total; else 0.
	RedisTotal int64 `json:"-"`

	CreatedAt time.Time
	UpdatedAt time.Time
}

// TableName names the view for gorm. Package campaigns writes its tables.
func (Campaign) TableName() string { return "defined_lots" }

// HoldFor is how long a claim may stay unredeemed; 0 is no limit.
func (c *Campaign) HoldFor() time.Duration { return time.Duration(c.HoldForMs) * time.Millisecond }

// Location is the zone in which the limits' windows begin.
func (c *Campaign) Location() (*time.Location, error) { return calendar.LoadZone(c.TimeZone) }

// WithoutBooks is the part of a campaign that its creator chose.
func (c *Campaign) WithoutBooks() Campaign {
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

// DefinitionJSON is a campaign's definition in the API, the console and the
// audit log.
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

// DefinitionJSON returns the definition for the API.
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

// Change changes a campaign's definition. A nil field stays as it is.
type Change struct {
	// IfVersion limits the change to campaigns whose Version is among these;
	// nil is any.
	IfVersion []int64

	Name          *string
	Public        *string
	Total         *int64
	PerUser       *int64
	PerUserPerDay *int64
	Limits        *Limits    // replace all limits; PerUser and PerUserPerDay then apply
	StartsAt      *time.Time // the zero time removes it
	EndsAt        *time.Time // the zero time removes it
	LowStockAt    *int64
	Status        *Status // open, paused or closed; closed is final
}

// Pauses reports whether the change does nothing but pause.
func (ch Change) Pauses() bool {
	if ch.Status == nil || *ch.Status != StatusPaused {
		return false
	}
	ch.Status = nil
	ch.IfVersion = nil
	return reflect.DeepEqual(ch, Change{})
}

// Fits reports whether the change applies to this version.
func (ch Change) Fits(version int64) bool {
	return ch.IfVersion == nil || slices.Contains(ch.IfVersion, version)
}

// Apply changes c. The caller validates the result.
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

// Validate returns nil, or a *FieldError for the first invalid field.
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

// SoldEver returns the units ever sold that MySQL knows of, returned and
// lost ones among them. Those of parked claims come on top.
func (c *Campaign) SoldEver() int64 { return c.Sold + c.LostUnits + c.GivenUpUnits }
