package client

import (
	"encoding/json"
	"time"
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

// The states of a campaign. Closed is for ever.
const (
	StatusOpen   Status = "open"
	StatusPaused Status = "paused"
	StatusClosed Status = "closed"
)

// ClaimStatus is the state of a claim.
type ClaimStatus string

// The states of a claim.
const (
	ClaimClaimed  ClaimStatus = "claimed"
	ClaimRedeemed ClaimStatus = "redeemed"
	ClaimReleased ClaimStatus = "released"
	ClaimExpired  ClaimStatus = "expired"
)

// Claim is a user's current or former claim.
type Claim struct {
	ID         string      `json:"id"`
	CampaignID string      `json:"campaign_id"`
	UserID     string      `json:"user_id"`
	Quantity   int64       `json:"quantity"` // units
	Seq        int64       `json:"seq"`      // number among the campaign's claims, from 1
	Status     ClaimStatus `json:"status"`
	ClaimedAt  time.Time   `json:"claimed_at"`
	PacketID   string      `json:"packet_id,omitempty"`
	Amount     *int64      `json:"amount,omitempty"` // minor units of Currency
	Currency   string      `json:"currency,omitempty"`
	// when it expires unless redeemed
	ExpiresAt *time.Time `json:"expires_at,omitempty"`

	OrderID       string     `json:"order_id,omitempty"` // the order that redeemed it
	RedeemedAt    *time.Time `json:"redeemed_at,omitempty"`
	ReleasedAt    *time.Time `json:"released_at,omitempty"`    // when it was released or expired
	ReleaseReason string     `json:"release_reason,omitempty"` // as sent with the release

	// Replayed means that this answers an earlier attempt. An older service
	// reports it in a shared request only if all its claims are replays.
	Replayed bool `json:"-"`
}

// Stock is a campaign's stock at one moment, in units.
type Stock struct {
	CampaignID string    `json:"campaign_id"`
	Total      int64     `json:"total"`
	Remaining  int64     `json:"remaining"` // what can still be claimed
	Claimed    int64     `json:"claimed"`   // live claims
	Synced     int64     `json:"synced"`    // of these, in MySQL
	Backlog    int64     `json:"backlog"`   // of these, on their way to MySQL
	Drift      int64     `json:"drift"`     // Redis less MySQL; 0 unless something is wrong, never a lag
	Low        bool      `json:"low"`
	AsOf       time.Time `json:"as_of"`
}

// Campaign is the definition of a campaign.
type Campaign struct {
	ID            string `json:"id"`
	Kind          Kind   `json:"kind"`
	Name          string `json:"name,omitempty"`
	Status        Status `json:"status"`
	Total         int64  `json:"total"`                      // units
	PerUser       int64  `json:"per_user,omitempty"`         // units; 0 is no limit
	PerUserPerDay int64  `json:"per_user_per_day,omitempty"` // units; 0 is no limit
	// all of them, including PerUser and PerUserPerDay
	Limits     []Limit    `json:"limits,omitempty"`
	TimeZone   string     `json:"time_zone"`
	StartsAt   *time.Time `json:"starts_at,omitempty"`
	EndsAt     *time.Time `json:"ends_at,omitempty"`
	LowStockAt int64      `json:"low_stock_at,omitempty"` // units
	Currency   string     `json:"currency,omitempty"`
	SenderID   string     `json:"sender_id,omitempty"`
	// longest hold with extensions; 0 is twice hold_for
	HoldMax Duration `json:"hold_max,omitempty"`
	// how long a claim may stay unredeemed; 0: unlimited
	HoldFor Duration `json:"hold_for,omitempty"`
	Shards  int      `json:"shards,omitempty"` // 0 is 1
	// the subject whose value selects the shard; "" is the user
	ShardBy string `json:"shard_by,omitempty"`
	// what anyone may read: "level", "count", or "" for nothing
	Public    string    `json:"public,omitempty"`
	Version   int64     `json:"version"` // number of the last change
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Limit bounds the units that one subject may claim in each window of time.
type Limit struct {
	// "user", or the name of a subject, see ClaimRequest
	By string `json:"by"`
	// "all", "hour", "day", "week" or "month"
	Per string `json:"per"`
	Max int64  `json:"max"` // units
	// earlier claims don't count; nil: all count
	CountedFrom *time.Time `json:"counted_from,omitempty"`
}

// NewCampaign describes a campaign to create. ID and Kind are required, and
// Total for a coupon.
type NewCampaign struct {
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	Name string `json:"name,omitempty"`
	// units; a packet campaign's follow from its packets
	Total *int64 `json:"total,omitempty"`
	// units; 0 is no limit; nil is 0, or 1 for packets
	PerUser       *int64 `json:"per_user,omitempty"`
	PerUserPerDay int64  `json:"per_user_per_day,omitempty"` // units; 0 is no limit
	// PerUser and PerUserPerDay are short for two of them
	Limits []Limit `json:"limits,omitempty"`
	// in which the limits' windows begin; "" is UTC
	TimeZone   string     `json:"time_zone,omitempty"`
	StartsAt   *time.Time `json:"starts_at,omitempty"`
	EndsAt     *time.Time `json:"ends_at,omitempty"`
	LowStockAt int64      `json:"low_stock_at,omitempty"` // units; 0 is never
	Currency   string     `json:"currency,omitempty"`     // ISO 4217
	SenderID   string     `json:"sender_id,omitempty"`    // user who gets back what is left
	HoldFor    Duration   `json:"hold_for,omitempty"`     // 0: unlimited
	HoldMax    Duration   `json:"hold_max,omitempty"`     // with extensions
	Shards     int        `json:"shards,omitempty"`       // 0 is 1
	// the subject whose value selects the shard; "" is the user
	ShardBy string `json:"shard_by,omitempty"`
	// what anyone may read: "level", "count", or "" for nothing
	Public string `json:"public,omitempty"`
}

// CampaignPatch changes a campaign. nil fields stay as they are.
type CampaignPatch struct {
	Name          *string
	Public        *string // "level", "count", or "" for nothing
	Total         *int64
	PerUser       *int64
	PerUserPerDay *int64
	Limits        *[]Limit // replaces all limits; one that existed keeps its counts
	StartsAt      *time.Time
	EndsAt        *time.Time
	NoStart       bool // removes the start; not with StartsAt
	NoEnd         bool // removes the end; not with EndsAt
	LowStockAt    *int64
	Status        *Status // StatusOpen or StatusPaused; see CloseCampaign
}

// MarshalJSON omits what stays as it is.
func (p CampaignPatch) MarshalJSON() ([]byte, error) {
	fields := map[string]any{}
	put(fields, "name", p.Name, false)
	if p.Public != nil && *p.Public == "" {
		fields["public"] = false
	} else {
		put(fields, "public", p.Public, false)
	}
	put(fields, "total", p.Total, false)
	put(fields, "per_user", p.PerUser, false)
	put(fields, "per_user_per_day", p.PerUserPerDay, false)
	put(fields, "limits", p.Limits, false)
	put(fields, "starts_at", p.StartsAt, p.NoStart)
	put(fields, "ends_at", p.EndsAt, p.NoEnd)
	put(fields, "low_stock_at", p.LowStockAt, false)
	put(fields, "status", p.Status, false)
	return json.Marshal(fields)
}

func put[T any](fields map[string]any, name string, value *T, asNull bool) {
	if value != nil || asNull {
		fields[name] = value
	}
}

// Split is how an amount is divided into packets.
type Split string

// The splits.
const (
	SplitDoubleMean Split = "double_mean"
	SplitRandomCut  Split = "random_cut"
	SplitEven       Split = "even"
)

// NewPackets are packets for a campaign: a list, or Count packets made of
// Amount.
type NewPackets struct {
	Packets []Packet `json:"packets,omitempty"`

	Count  int64 `json:"count,omitempty"`
	Amount int64 `json:"amount,omitempty"` // minor units, the sum
	Split  Split `json:"split,omitempty"`
	Min    int64 `json:"min,omitempty"` // minor units
	Max    int64 `json:"max,omitempty"` // minor units

	ReleaseAt *time.Time `json:"release_at,omitempty"` // nil is at once

	// Key is the idempotency key; "" generates one for this call.
	Key string `json:"-"`
}

// Packet is one red packet.
type Packet struct {
	ID     string `json:"id"`
	Amount int64  `json:"amount"` // minor units
}

// PacketsAdded is the number and the sum of the added packets.
type PacketsAdded struct {
	Count  int64 `json:"count"`
	Amount int64 `json:"amount"` // minor units
}

// Duration is a time.Duration that JSON shows as 15m0s.
type Duration time.Duration

// MarshalText writes it as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads it as Go does.
func (d *Duration) UnmarshalText(text []byte) error {
	read, err := time.ParseDuration(string(text))
	*d = Duration(read)
	return err //nolint:wrapcheck // json names the field
}
