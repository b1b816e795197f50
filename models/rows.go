package models

import "time"

// ClaimRow is a row of MySQL's claims table: one per accepted claim. Its key is
// the claim's id, so that a redelivered event finds its row.
type ClaimRow struct {
	ID         string      `gorm:"primaryKey" json:"id"`
	CampaignID string      `json:"campaign_id"`
	Shard      int         `json:"shard"` // from 1; 0 in a campaign of one shard
	Seq        int64       `json:"seq"`
	UserID     string      `json:"user_id"`
	Quantity   int64       `json:"quantity"`
	Status     ClaimStatus `json:"status"`
	KeyDigest  string      `json:"key_digest"` // of the client's idempotency key, see Event.Key
	Subjects   Subjects    `gorm:"type:varchar(4000)" json:"subjects,omitempty"`
	Epoch      int64       `json:"epoch"`
	PacketID   *string     `json:"packet_id"`
	Amount     *int64      `json:"amount"`
	OrderID    *string     `json:"order_id"`
	ClaimedAt  time.Time   `json:"claimed_at"`
	SyncedAt   time.Time   `json:"synced_at"`

	ResolvedAt    *time.Time `json:"resolved_at"` // when it was redeemed, released or expired
	ReleaseReason string     `json:"release_reason"`
	Decisions     *int64     `json:"decisions,omitempty"`   // how often it was decided; nil: never
	ReopenedAt    *time.Time `json:"reopened_at,omitempty"` // when its hold began anew
	// when its hold ends, if it was extended
	HeldUntil *time.Time `json:"held_until,omitempty"`
}

// DecisionsMade is how often it was decided what becomes of a claim.
func (c *ClaimRow) DecisionsMade() int64 {
	if c.Decisions == nil {
		return 0
	}
	return *c.Decisions
}

// TableName names the table for gorm.
func (ClaimRow) TableName() string { return "claims" }

// StockFlush is a row of stock_flushes: what one flush did for one campaign.
type StockFlush struct {
	ID         string `gorm:"primaryKey"` // UUIDv7
	CampaignID string
	Units      int64
	Claims     int64
	FirstSeq   int64
	LastSeq    int64
	TookMs     int64
	FlushedAt  time.Time

	Shard int // from 1; 0 in a campaign of one shard

	FirstClaimedMs int64 // when the earliest of the claims was made, since 1970
}

// TableName names the table for gorm.
func (StockFlush) TableName() string { return "stock_flushes" }

// StockMove is a row of stock_moves: units on their way from one shard to
// another, or out of the campaign.
type StockMove struct {
	ID         string `gorm:"primaryKey"` // UUIDv7
	CampaignID string
	FromShard  int // 0: the campaign's total
	ToShard    int // likewise
	Units      int64
	DebitedAt  time.Time
	CreditedAt *time.Time // nil: they are in no shard
}

// TableName names the table for gorm.
func (StockMove) TableName() string { return "stock_moves" }

// HoldCursor is a row of hold_cursors: how far the holds of a lot have been
// gone over.
type HoldCursor struct {
	CampaignID string `gorm:"primaryKey"`
	Shard      int    `gorm:"primaryKey;autoIncrement:false"` // 0 in a campaign of one shard
	Seq        int64  // holds of claims up to here have ended
	// when the next one ends, since 1970, by the clock of Redis; nil: no claim
	// is behind Seq
	DueMs *int64
}

// TableName names the table for gorm.
func (HoldCursor) TableName() string { return "hold_cursors" }

// ClaimOrder is a row of claim_orders: an order that redeemed a claim.
type ClaimOrder struct {
	OrderID  string `gorm:"primaryKey"`
	ClaimID  string `gorm:"primaryKey"`
	Reopened *int   // 1: that was taken back
}

// TableName names the table for gorm.
func (ClaimOrder) TableName() string { return "claim_orders" }

// HoldExtension is a row of hold_extensions: a request that extended a hold.
type HoldExtension struct {
	ClaimID   string `gorm:"primaryKey"`
	KeyDigest string `gorm:"primaryKey"` // of its idempotency key
}

// TableName names the table for gorm.
func (HoldExtension) TableName() string { return "hold_extensions" }

// HoldDue is a row of hold_dues: a claim whose hold ends at a time of its own.
type HoldDue struct {
	ClaimID string `gorm:"primaryKey"`
	DueMs   int64  // since 1970, by the clock of Redis
}

// TableName names the table for gorm.
func (HoldDue) TableName() string { return "hold_dues" }

// ParkedEvent is a row of parked_events: an event that MySQL refuses for good,
// kept with its payload until a person decides.
type ParkedEvent struct {
	ID         string `gorm:"primaryKey"` // the event's id
	CampaignID string
	UserID     string
	Reason     string
	Payload    []byte
	ParkedAt   time.Time
}

// TableName names the table for gorm.
func (ParkedEvent) TableName() string { return "parked_events" }

// OutboxKind says what Redis has to be told.
type OutboxKind string

// The kinds of outbox rows.
const (
	OutboxEvent OutboxKind = "event" // add an event to the claim stream
	// give back the units of a released claim, and add its event to the claim
	// stream
	OutboxRelease OutboxKind = "release"
)

// OutboxRow is a row of outbox: something that Redis has to be told at least
// once, written in the transaction that caused it.
type OutboxRow struct {
	ID         string `gorm:"primaryKey"` // UUIDv7, and the id of the event
	CampaignID string
	Kind       OutboxKind
	ClaimID    *string // the claim that it is about, if any
	Payload    []byte  // the event, see Event
	CreatedAt  time.Time

	Event *Event `gorm:"-"` // that Payload holds; nil in a row that was read
}

// TableName names the table for gorm.
func (OutboxRow) TableName() string { return "outbox" }

// Setting is a row of settings: a value that is fixed once data exists.
type Setting struct {
	Name  string `gorm:"primaryKey"`
	Value string
}

// TableName names the table for gorm.
func (Setting) TableName() string { return "settings" }

// PartitionState is how a partition is.
type PartitionState string

// The states of a partition.
const (
	PartitionOK PartitionState = "ok"
	// Redis lost data: entries that MySQL lacks are read first
	PartitionRecovering PartitionState = "recovering"
	PartitionGap        PartitionState = "gap" // MySQL is older than the claim stream begins
)

// StreamRecord is a row of streams: how far a claim stream is applied.
type StreamRecord struct {
	Partition  int `gorm:"column:partition_no;primaryKey;autoIncrement:false"`
	State      PartitionState
	Generation int64 // how often Redis lost data of the partition

	OffsetID      string     // entry that was applied last, see Offset
	OffsetEventID string     // its event
	OffsetRead    int64      // entries up to it
	OffsetAt      *time.Time // when it moved last
	// by the clock of Redis: every claim that was made before has its row or is
	// parked
	CompleteAt time.Time
}

// TableName names the table for gorm.
func (StreamRecord) TableName() string { return "streams" }

// Offset returns how far the stream is applied.
func (r *StreamRecord) Offset() Offset {
	return Offset{EntryID: r.OffsetID, EventID: r.OffsetEventID, Read: r.OffsetRead, Generation: r.Generation, State: r.State}
}

// PacketRow is a row of MySQL's packets table: one red packet, written before
// Redis knows it.
type PacketRow struct {
	CampaignID string `gorm:"primaryKey"`
	ID         string `gorm:"primaryKey"`
	Position   int64  // from 1, without gaps, per campaign
	Shard      int    // 0 in a campaign of one shard
	Amount     int64  // minor units
	UserID     *string
	ClaimID    *string // the claim that took it, set once
	ReleaseAt  *time.Time
	ReturnedAt *time.Time
	CreatedAt  time.Time
}

// TableName names the table for gorm.
func (PacketRow) TableName() string { return "packets" }

// PacketBatchRow is a row of MySQL's packet_batches: a request that added
// packets.
type PacketBatchRow struct {
	CampaignID    string     `gorm:"primaryKey" json:"-"`
	FirstPosition int64      `gorm:"primaryKey;autoIncrement:false" json:"first_position"`
	Packets       int64      `json:"packets"`
	Amount        int64      `json:"amount"` // of all of them, minor units
	ReleaseAt     *time.Time `json:"release_at,omitempty"`
	RequestKey    string     `json:"request_key"`
	Digest        string     `json:"digest"` // of what was asked for
	CreatedAt     time.Time  `json:"created_at"`
}

// TableName names the table for gorm.
func (PacketBatchRow) TableName() string { return "packet_batches" }

// Trouble counts what needs a person.
type Trouble struct {
	Parked     int64      // claims that MySQL refuses
	Drifting   int64      // campaigns whose last comparison found a drift
	ComparedAt *time.Time // when the last comparison was recorded; nil: none was
}

// Wave is the packets of a campaign that are released at one time.
type Wave struct {
	ReleaseAt *time.Time // nil: at once
	Packets   int64
	Taken     int64 // have their claim
	Returned  int64 // returned to the sender
	Amount    int64 // of all, minor units
}

// ClaimStory is what MySQL holds of one claim.
type ClaimStory struct {
	Row    *ClaimRow    // nil: it has none
	Parked *ParkedEvent // nil: it is not parked
	Outbox []OutboxRow  // what Redis and the stream are notified of its end
}
