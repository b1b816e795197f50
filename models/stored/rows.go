package stored

import (
	"time"

	"dibs/models"
	"dibs/models/event"
)

// ClaimRow is a row of claims: one per accepted claim. The claim's id is the
// key, so a redelivered event finds its row.
type ClaimRow struct {
	ID         string             `gorm:"primaryKey" json:"id"`
	CampaignID string             `json:"campaign_id"`
	Shard      int                `json:"shard"` // from 1; 0 in a campaign of one shard
	Seq        int64              `json:"seq"`
	UserID     string             `json:"user_id"`
	Quantity   int64              `json:"quantity"`
	Status     models.ClaimStatus `json:"status"`
	KeyDigest  string             `json:"key_digest"` // of the client's idempotency key, see Event.Key
	Subjects   models.Subjects    `gorm:"type:varchar(4000)" json:"subjects,omitempty"`
	Epoch      int64              `json:"epoch"`
	PacketID   *string            `json:"packet_id"`
	Amount     *int64             `json:"amount"`
	OrderID    *string            `json:"order_id"`
	ClaimedAt  time.Time          `json:"claimed_at"`
	SyncedAt   time.Time          `json:"synced_at"`

	ResolvedAt    *time.Time `json:"resolved_at"` // when it was redeemed, released or expired
	ReleaseReason string     `json:"release_reason"`
	Decisions     *int64     `json:"decisions,omitempty"`   // number of decisions; nil: none
	ReopenedAt    *time.Time `json:"reopened_at,omitempty"` // when its hold started again
	// when its hold ends, if extended
	HeldUntil *time.Time `json:"held_until,omitempty"`
}

// ClaimIdentity are the columns that IsOf reads, and seq.
const ClaimIdentity = "id, campaign_id, shard, seq, user_id, quantity"

// IsOf reports whether the claim is that of an
// event. A repair may have changed its seq.
func (r *ClaimRow) IsOf(e *event.Event) bool {
	return r.ID == e.ID && r.CampaignID == e.CampaignID && r.Shard == e.Shard && r.UserID == e.UserID && r.Quantity == e.Quantity
}

// LotID is the id of the claim's lot: its shard or its campaign.
func (r *ClaimRow) LotID() string { return models.ShardID(r.CampaignID, r.Shard) }

// Claim returns the row for the API. currency and holdForMs are the
// campaign's.
func (r *ClaimRow) Claim(currency string, holdForMs int64) models.Claim {
	c := models.Claim{
		ID: r.ID, CampaignID: r.CampaignID, UserID: r.UserID, Quantity: r.Quantity, Seq: r.Seq, Status: r.Status,
		ClaimedAt: models.NewTime(r.ClaimedAt), Amount: r.Amount,
	}
	if r.PacketID != nil {
		c.PacketID = *r.PacketID
	}
	if r.Amount != nil {
		c.Currency = currency
	}
	c = c.WithHold(holdForMs)
	r.addHold(&c, holdForMs)
	r.addResolution(&c)
	return c
}

// addHold sets the end of the hold if it was extended or reopened.
func (r *ClaimRow) addHold(c *models.Claim, forMs int64) {
	switch {
	case forMs == 0:
	case r.HeldUntil != nil:
		c.ExpiresAt = new(models.NewTime(*r.HeldUntil))
	case r.ReopenedAt != nil:
		c.ExpiresAt = new(models.NewTime(r.ReopenedAt.Add(time.Duration(forMs) * time.Millisecond)))
	}
}

// addResolution adds what became of the claim.
func (r *ClaimRow) addResolution(c *models.Claim) {
	if r.OrderID != nil {
		c.OrderID = *r.OrderID
	}
	c.ReleaseReason = r.ReleaseReason
	if r.ResolvedAt == nil {
		return
	}
	at := models.NewTime(*r.ResolvedAt)
	if r.Status == models.ClaimRedeemed {
		c.RedeemedAt = &at
	} else {
		c.ReleasedAt = &at
	}
}

// DecisionsMade is the number of decisions about the claim.
func (r *ClaimRow) DecisionsMade() int64 {
	if r.Decisions == nil {
		return 0
	}
	return *r.Decisions
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

// StockMove is a row of stock_moves: units moving between shards, or out of
// the campaign.
type StockMove struct {
	ID         string `gorm:"primaryKey"` // UUIDv7
	CampaignID string
	FromShard  int // 0: the campaign's total
	ToShard    int // 0: the campaign's total
	Units      int64
	DebitedAt  time.Time
	CreditedAt *time.Time // nil: the units are in no shard
}

// TableName names the table for gorm.
func (StockMove) TableName() string { return "stock_moves" }

// HoldCursor is a row of hold_cursors: how far a lot's holds were checked.
type HoldCursor struct {
	CampaignID string `gorm:"primaryKey"`
	Shard      int    `gorm:"primaryKey;autoIncrement:false"` // 0 in a campaign of one shard
	Seq        int64  // holds of claims up to this Seq have ended
	// when the next one ends, since 1970, by Redis' clock; nil: no claim
	// after Seq
	DueMs *int64
}

// TableName names the table for gorm.
func (HoldCursor) TableName() string { return "hold_cursors" }

// ClaimOrder is a row of claim_orders: an order that redeemed a claim.
type ClaimOrder struct {
	OrderID  string `gorm:"primaryKey"`
	ClaimID  string `gorm:"primaryKey"`
	Reopened *int   // 1: the redeem was undone
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

// HoldDue is a row of hold_dues: a claim whose hold ends at a time of its
// own.
type HoldDue struct {
	ClaimID string `gorm:"primaryKey"`
	DueMs   int64  // since 1970, by Redis' clock
}

// TableName names the table for gorm.
func (HoldDue) TableName() string { return "hold_dues" }

// ParkedEvent is a row of parked_events: an event that MySQL refuses
// permanently, kept with its payload until an operator decides.
type ParkedEvent struct {
	ID       string `gorm:"primaryKey"` // the event's id
	LotID    string `gorm:"column:campaign_id"`
	UserID   string
	Reason   string
	Payload  []byte
	ParkedAt time.Time
}

// TableName names the table for gorm.
func (ParkedEvent) TableName() string { return "parked_events" }

// OutboxKind is what Redis has to do.
type OutboxKind string

// The kinds of outbox rows.
const (
	OutboxEvent OutboxKind = "event" // add an event to the claim stream
	// OutboxRelease: return a released claim's units, and add its event to the
	// claim stream.
	OutboxRelease OutboxKind = "release"
)

// OutboxRow is a row of outbox: something that Redis must do at least once,
// written in the transaction that caused it.
type OutboxRow struct {
	ID        string `gorm:"primaryKey"` // UUIDv7, and the id of the event
	LotID     string `gorm:"column:campaign_id"`
	Kind      OutboxKind
	ClaimID   *string // the claim concerned, if any
	Payload   []byte  // the event, see Event
	CreatedAt time.Time

	Event *event.Event `gorm:"-"` // the event in Payload; nil in a row that was read
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

// StreamRecord is a row of streams: how far a claim stream is applied.
type StreamRecord struct {
	Partition  int `gorm:"column:partition_no;primaryKey;autoIncrement:false"`
	State      event.PartitionState
	Generation int64 // how often Redis lost data of the partition

	OffsetID      string     // the last applied entry, see Offset
	OffsetEventID string     // its event
	OffsetRead    int64      // entries up to that one
	OffsetAt      *time.Time // when the offset last moved
	// by Redis' clock: every earlier claim has its row or is parked
	CompleteAt time.Time
}

// TableName names the table for gorm.
func (StreamRecord) TableName() string { return "streams" }

// Offset returns how far the stream is applied.
func (r *StreamRecord) Offset() event.Offset {
	return event.Offset{EntryID: r.OffsetID, EventID: r.OffsetEventID, Read: r.OffsetRead, Generation: r.Generation, State: r.State}
}

// PacketRow is a row of packets: one red packet, written before Redis has it.
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

// Trouble counts what an operator must decide.
type Trouble struct {
	Parked     int64      // claims that MySQL refuses
	Drifting   int64      // campaigns whose last comparison found a drift
	ComparedAt *time.Time // time of the last recorded comparison; nil: none
}

// Wave is a campaign's packets with one release time.
type Wave struct {
	ReleaseAt *time.Time // nil: at once
	Packets   int64
	Taken     int64 // claimed
	Returned  int64 // returned to the sender
	Amount    int64 // of all, minor units
}

// ClaimStory is everything that MySQL holds of one claim.
type ClaimStory struct {
	Row    *ClaimRow    // nil: it has none
	Parked *ParkedEvent // nil: it is not parked
	Outbox []OutboxRow  // rows that report its end to Redis and the stream
}

// Reconciliation is a row of reconciliations: the result of one comparison of
// Redis and MySQL.
type Reconciliation struct {
	ID             string `gorm:"primaryKey"` // UUIDv7
	CampaignID     string
	RedisRemaining *int64 // units; nil when Redis did not hold the campaign
	MySQLRemaining int64  `gorm:"column:mysql_remaining"` // units
	Backlog        *int64 // accepted claims without a row; nil when Redis did not hold the campaign
	Drift          *int64 // units, Redis less MySQL; nil without a common watermark
	At             time.Time
}

// TableName names the table for gorm.
func (Reconciliation) TableName() string { return "reconciliations" }

// Repair is a row of repairs: one change that a repair made.
type Repair struct {
	ID          string    `gorm:"primaryKey" json:"-"` // UUIDv7
	LotID       string    `gorm:"column:campaign_id" json:"campaign_id"`
	What        string    `json:"what"` // claims, campaigns or redis
	ValueBefore string    `json:"before"`
	ValueAfter  string    `json:"after"`
	At          time.Time `json:"at"`
}

// TableName names the table for gorm.
func (Repair) TableName() string { return "repairs" }

// ConsumerGroup is a row of consumer_groups: a group whose unread events are
// kept.
type ConsumerGroup struct {
	Name         string `gorm:"primaryKey"`
	RegisteredAt time.Time
}

// TableName names the table for gorm.
func (ConsumerGroup) TableName() string { return "consumer_groups" }

// WebhookEvent is a row of webhook_events: an event that an endpoint hasn't
// accepted.
type WebhookEvent struct {
	Endpoint   string `gorm:"primaryKey"`
	CampaignID string `gorm:"primaryKey"`
	No         int64  `gorm:"primaryKey;autoIncrement:false"` // the order of delivery
	EventID    string
	Type       event.Type
	At         time.Time // of the event
	Payload    []byte
	CreatedAt  time.Time
	ParkedAt   *time.Time // nil: still retried
	Reason     string     // why it was parked
	Announced  int        // 1: a later delivery has informed the endpoint that it is missing
}

// TableName names the table for gorm.
func (WebhookEvent) TableName() string { return "webhook_events" }
