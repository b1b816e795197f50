package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"dibs/models"
)

// Version is the `v` of events that this code writes and reads.
const Version = 1

// Type is the type of an event.
type Type string

// The types of event in a claim stream.
const (
	ClaimAccepted    Type = "claim.accepted"
	ClaimReleased    Type = "claim.released"
	ClaimRedeemed    Type = "claim.redeemed"
	ClaimReopened    Type = "claim.reopened" // a redeem was undone
	ClaimExtended    Type = "claim.extended" // its hold was extended
	CampaignLowStock Type = "campaign.low_stock"
	CampaignSoldOut  Type = "campaign.sold_out"
	CampaignClosed   Type = "campaign.closed"
	ClaimsGivenUp    Type = "claims.given_up"
	ClaimsDropped    Type = "claims.dropped"
	UnitsDebited     Type = "units.debited"
	UnitsCredited    Type = "units.credited"

	CampaignChanged     Type = "campaign.changed" // a lot applies a new definition
	CampaignPaused      Type = "campaign.paused"  // in Redis, while MySQL was unavailable
	CampaignDeleted     Type = "campaign.deleted" // it had no claims
	PacketsPushed       Type = "packets.pushed"
	LotLoaded           Type = "lot.loaded"
	LotResumed          Type = "lot.resumed"
	LotEvicted          Type = "lot.evicted"
	PartitionGeneration Type = "partition.generation" // of no campaign
)

// ModeMySQL marks claims that are answered only after MySQL has their row.
const ModeMySQL = "mysql"

// Types are the types that a webhook endpoint can subscribe to. The
// others are internal.
var Types = []Type{
	ClaimAccepted, ClaimReleased, ClaimRedeemed, ClaimReopened, ClaimExtended,
	CampaignLowStock, CampaignSoldOut, CampaignClosed,
	ClaimsGivenUp, ClaimsDropped,
}

// Event is the payload of a claim stream entry. The id of a claim.accepted is
// the claim's id. Readers must ignore unknown fields and types.
type Event struct {
	V          int    `json:"v"`
	Type       Type   `json:"type"`
	ID         string `json:"id"` // for deduplication
	CampaignID string `json:"campaign_id"`
	UserID     string `json:"user_id,omitempty"`
	Quantity   int64  `json:"quantity,omitempty"` // units
	// Subjects are the claim's subjects beside its user, as stored.
	Subjects models.Subjects `json:"subjects,omitempty"`
	// Key is the digest of the client's idempotency key, base64url without
	// padding; "" if it sent none.
	Key string `json:"key,omitempty"`
	// Mode is ModeMySQL in a claim.accepted whose answer waits for its row;
	// else "".
	Mode string `json:"mode,omitempty"`
	// Epoch is the load of the campaign that this event comes from.
	Epoch int64 `json:"epoch,omitempty"`
	Seq   int64 `json:"seq,omitempty"`
	// Shard is the claim's shard, from 1; 0 in a campaign of one shard. Seq
	// counts within it.
	Shard int `json:"shard,omitempty"`
	// Remaining is what a change of stock left, in units.
	Remaining *int64      `json:"remaining,omitempty"`
	At        models.Time `json:"at"`
	PacketID  string      `json:"packet_id,omitempty"`
	Amount    *int64      `json:"amount,omitempty"` // minor units
	Currency  string      `json:"currency,omitempty"`

	// Only in claim.released, claim.redeemed, claim.reopened and
	// claim.extended: the claim, when it was made, and what was decided.
	ClaimID   string       `json:"claim_id,omitempty"`
	ClaimedAt *models.Time `json:"claimed_at,omitempty"`
	OrderID   string       `json:"order_id,omitempty"`
	// ExpiresAt is when the hold ends, in claim.reopened and claim.extended.
	// ExtendKey is the digest of an extension's idempotency key.
	ExpiresAt *models.Time `json:"expires_at,omitempty"`
	ExtendKey string       `json:"extend_key,omitempty"`
	// Decision counts the claim's decisions, from 1.
	Decision int64  `json:"decision,omitempty"`
	Reason   string `json:"reason,omitempty"` // "expired", or the reason sent with the release

	// Only in units.debited and units.credited, the two halves of one Move, a
	// row of stock_moves. Quantity units went from Shard to shard Peer, or
	// came from it. Peer 0 is the campaign's total.
	Peer int    `json:"peer,omitempty"`
	Move string `json:"move,omitempty"`

	// Only in lot.loaded and lot.resumed: all units ever sold of the lot, and
	// its claims in MySQL with their Quantity units. Seq is the highest that
	// was used. Version is that of the definition, also in campaign.changed.
	Sold    int64 `json:"sold,omitempty"`
	Claims  int64 `json:"claims,omitempty"`
	Version int64 `json:"version,omitempty"`
	// Definition is the campaign's, also in campaign.changed.
	Definition *models.Definition `json:"definition,omitempty"`
	// Only in campaign.paused: the pause's id, the user who paused, and the
	// request. All lots of a campaign have the same id. Later ids are
	// greater.
	PauseID   string `json:"pause_id,omitempty"`
	Actor     string `json:"actor,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	// MadeMs is when the campaign was made, in ms since 1970, as a deleted one
	// may have had its id. 0: unknown. Only in campaign.closed and in events of
	// lots and of units.
	MadeMs int64 `json:"made_ms,omitempty"`
	// Pushed is only in packets.pushed.
	Pushed *PushedPackets `json:"pushed,omitempty"`
	// Generation counts how often Redis lost data of the partition. Also in
	// partition.generation.
	Generation int64 `json:"generation,omitempty"`

	// In claims.given_up: the claims whose ids are known, and the ranges of
	// Seq of the others, both ends included. In claims.dropped: the claims,
	// which were never answered.
	IDs  []string   `json:"ids,omitempty"`
	Seqs [][2]int64 `json:"seqs,omitempty"`
	// GivenUp is only in claims.given_up: all that the lot has given up so
	// far.
	GivenUp *GivenUp `json:"given_up,omitempty"`
}

// GivenUp counts the lost claims that operators gave up, and their units.
type GivenUp struct {
	Claims int64 `json:"claims"`
	Units  int64 `json:"units"`
}

const pauseIDLength = 36

// ErrInvalid is wrapped by every refusal of an event. The message names the
// fault.
var ErrInvalid = errors.New("event: malformed")

// Decode reads and checks the payload of a stream entry. An unknown type
// is no error: the caller ignores the event.
func Decode(payload []byte) (Event, error) {
	var e Event
	if !scan(payload, &e) {
		var err error
		e, err = unmarshal(payload)
		if err != nil {
			return Event{}, err
		}
	}
	if err := e.validate(); err != nil {
		return Event{}, err
	}
	return e, nil
}

// unmarshal is separate because json.Unmarshal moves its event to the
// heap. The usual event avoids that.
func unmarshal(payload []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(payload, &e); err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return e, nil
}

func (e *Event) validate() error {
	switch {
	case e.V != Version:
		return fmt.Errorf("%w: v is %d, this reader knows %d", ErrInvalid, e.V, Version)
	case e.ID == "" || len(e.ID) > models.CampaignIDLength:
		return fmt.Errorf("%w: id %s", ErrInvalid, strconv.Quote(e.ID))
	case e.Type == PartitionGeneration && e.Generation > 0:
		return nil
	case models.CheckCampaignID(e.CampaignID) != nil:
		return fmt.Errorf("%w: campaign_id %s", ErrInvalid, strconv.Quote(e.CampaignID))
	case e.Shard < 0 || e.Shard > models.ShardsMax:
		return fmt.Errorf("%w: shard %d", ErrInvalid, e.Shard)
	case e.At.Year() < 1970 || e.At.Year() > 9999:
		return fmt.Errorf("%w: at %s", ErrInvalid, e.At)
	case e.Type == ClaimAccepted:
		return e.validateClaim()
	case e.IsMove() && !e.isValidMove():
		return fmt.Errorf("%w: move %s of %d units of shards %d and %d", ErrInvalid, strconv.Quote(e.Move), e.Quantity, e.Shard, e.Peer)
	case e.Type == PacketsPushed && !e.Pushed.isValid():
		return fmt.Errorf("%w: packets", ErrInvalid)
	case e.Type == CampaignPaused && (e.PauseID == "" || len(e.PauseID) > pauseIDLength):
		return fmt.Errorf("%w: pause_id %s", ErrInvalid, strconv.Quote(e.PauseID))
	case e.IsDecision():
		return e.validateResolution()
	}
	return nil
}

func (e *Event) isValidMove() bool {
	isBetween := e.Shard >= 1 && e.Peer >= 0 && e.Peer <= models.ShardsMax
	return isBetween && e.Quantity >= 1 && e.Move != "" && len(e.Move) <= models.CampaignIDLength
}

// IsAwaited reports whether the answer to a claim waits for its row in MySQL.
func (e *Event) IsAwaited() bool { return e.Mode == ModeMySQL && e.Type == ClaimAccepted }

// IsMove reports whether the event is half of a move of units between shards.
func (e *Event) IsMove() bool { return e.Type == UnitsDebited || e.Type == UnitsCredited }

// IsDecision reports whether the event decides a claim.
func (e *Event) IsDecision() bool {
	switch e.Type {
	case ClaimReleased, ClaimRedeemed, ClaimReopened, ClaimExtended:
		return true
	default:
		return false
	}
}

// IsOfLot reports whether the event changes a lot.
func (e *Event) IsOfLot() bool {
	switch e.Type {
	case LotLoaded, LotResumed, LotEvicted, CampaignChanged, CampaignPaused, PacketsPushed:
		return true
	default:
		return false
	}
}

func (e *Event) validateResolution() error {
	switch {
	case e.ClaimID == "" || len(e.ClaimID) > models.CampaignIDLength:
		return fmt.Errorf("%w: claim_id %s", ErrInvalid, strconv.Quote(e.ClaimID))
	case e.ClaimedAt == nil || e.ClaimedAt.Year() < 1970 || e.ClaimedAt.Year() > 9999:
		return fmt.Errorf("%w: claimed_at is missing or out of range", ErrInvalid)
	}
	return e.validateClaim()
}

func (e *Event) validateClaim() error {
	switch {
	case models.CheckUserID(e.UserID) != nil:
		return fmt.Errorf("%w: user_id %s", ErrInvalid, strconv.Quote(e.UserID))
	case e.Quantity < 1 || e.Quantity > models.QuantityMax:
		return fmt.Errorf("%w: quantity %d", ErrInvalid, e.Quantity)
	case e.Seq < 1:
		return fmt.Errorf("%w: seq %d", ErrInvalid, e.Seq)
	case e.PacketID != "" && (models.CheckCampaignID(e.PacketID) != nil || e.Amount == nil):
		return fmt.Errorf("%w: packet_id %s without a valid id or without an amount", ErrInvalid, strconv.Quote(e.PacketID))
	case e.Amount != nil && (*e.Amount < 0 || *e.Amount > models.AmountMax):
		return fmt.Errorf("%w: amount %d", ErrInvalid, *e.Amount)
	case e.Subjects.Validate() != nil:
		return fmt.Errorf("%w: subjects %w", ErrInvalid, e.Subjects.Validate())
	case e.Mode != "" && e.Mode != ModeMySQL:
		return fmt.Errorf("%w: mode %s", ErrInvalid, strconv.Quote(e.Mode))
	case len(e.Key) > 64:
		return fmt.Errorf("%w: key of %d characters", ErrInvalid, len(e.Key))
	}
	return nil
}

// LotID is the id of the claim's lot: its shard or its campaign.
func (e *Event) LotID() string { return models.ShardID(e.CampaignID, e.Shard) }

// Claim returns the claim of a claim.accepted. holdForMs is the campaign's.
func (e *Event) Claim(holdForMs int64) models.Claim {
	c := models.Claim{
		ID: e.ID, CampaignID: e.CampaignID, UserID: e.UserID, Quantity: e.Quantity, Seq: e.Seq, Status: models.ClaimClaimed, ClaimedAt: e.At,
		PacketID: e.PacketID, Amount: e.Amount, Currency: e.Currency,
	}
	return c.WithHold(holdForMs)
}

// Raw is an event with its JSON, which may hold fields that Event lacks.
type Raw struct {
	Event
	Payload     []byte
	TraceParent string // W3C trace context if the claim is traced; else ""
	Unreadable  string // why the entry holds no event; "" if it holds one
}
