package finance

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"dibs/models"
	"dibs/models/event"
)

// Group is the consumer group of the finance service.
const Group = "finance"

// ErrEvent is wrapped by every refusal of an event that can never be
// credited. The message names the fault.
var ErrEvent = errors.New("finance: bad event")

// Entry is a row of account_entries: one credit.
type Entry struct {
	// id of the event: the claim's, or that of campaign.closed
	ClaimID    string `gorm:"primaryKey"`
	UserID     string
	CampaignID string
	Shard      int // from 1; 0 in a campaign of one shard
	// the claim's in its shard; nil: the remainder of a closed campaign
	Seq        *int64
	PacketID   *string // nil: likewise; unique among entries
	Amount     int64   // minor units
	Currency   string  // ISO 4217; "" if the campaign has none
	ClaimedAt  time.Time
	CreditedAt time.Time
}

// TableName names the table for gorm.
func (Entry) TableName() string { return "account_entries" }

// Account is a row of accounts: the sum of a user's entries in a currency.
type Account struct {
	UserID    string `gorm:"primaryKey"`
	Currency  string `gorm:"primaryKey"`
	Amount    int64  // minor units
	Entries   int64
	UpdatedAt time.Time
}

// TableName names the table for gorm.
func (Account) TableName() string { return "accounts" }

// EntryOf returns the entry for an event; false if it needs none, such as a
// claim of a coupon. Errors: ErrEvent.
func EntryOf(e *event.Event) (entry Entry, credits bool, err error) {
	switch e.Type {
	case event.ClaimAccepted:
		if e.PacketID == "" && e.Amount == nil {
			return Entry{}, false, nil
		}
		err = checkPacket(e)
	case event.CampaignClosed:
		// nothing is left, or there is no sender
		if e.Amount == nil || *e.Amount == 0 || e.UserID == "" {
			return Entry{}, false, nil
		}
		err = checkMoney(e, 1)
	default:
		return Entry{}, false, nil
	}
	if err != nil {
		return Entry{}, false, err
	}
	entry = Entry{
		ClaimID: e.ID, UserID: e.UserID, CampaignID: e.CampaignID, Amount: *e.Amount, Currency: e.Currency, ClaimedAt: e.At.Time,
	}
	if e.PacketID != "" {
		entry.PacketID = &e.PacketID
		entry.Shard = e.Shard
		entry.Seq = &e.Seq
	}
	return entry, true, nil
}

func checkPacket(e *event.Event) error {
	switch {
	case models.CheckCampaignID(e.PacketID) != nil:
		return fmt.Errorf("%w: packet_id %q of a claim with an amount", ErrEvent, e.PacketID)
	case e.Amount == nil:
		return fmt.Errorf("%w: packet %s without an amount", ErrEvent, e.PacketID)
	}
	return checkMoney(e, 0)
}

func checkMoney(e *event.Event, least int64) error {
	switch {
	case *e.Amount < least || *e.Amount > models.AmountMax: // so that the entries of a batch add up without overflow
		return fmt.Errorf("%w: amount %d", ErrEvent, *e.Amount)
	case e.Currency != "" && !models.IsCurrency(e.Currency): // without one, amounts have a separate account
		return fmt.Errorf("%w: currency %q", ErrEvent, e.Currency)
	case models.CheckUserID(e.UserID) != nil:
		return fmt.Errorf("%w: user_id %q", ErrEvent, e.UserID)
	}
	return nil
}

type packetKey struct{ campaignID, packetID string }

func (e *Entry) packet() (packetKey, bool) {
	if e.PacketID == nil {
		return packetKey{}, false
	}
	return packetKey{e.CampaignID, *e.PacketID}, true
}

// same reports whether two entries credit the same, one of them perhaps
// from the books. Times don't matter.
func (e *Entry) same(other *Entry) bool {
	packet, _ := e.packet()
	otherPacket, _ := other.packet()
	if strings.HasPrefix(packet.packetID, reversed) { // it was vacated
		packet = otherPacket
	}
	return e.ClaimID == other.ClaimID && e.UserID == other.UserID && e.CampaignID == other.CampaignID &&
		packet == otherPacket && e.Amount == other.Amount && e.Currency == other.Currency
}
