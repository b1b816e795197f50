package models

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

const (
	// AmountMax bounds the amount of a packet, of a batch and of all packets
	// of a campaign, in minor units. Lua and JSON readers hold its 15 digits
	// exactly.
	AmountMax int64 = 999_999_999_999_999
	// PacketsMax bounds the packets of a campaign.
	PacketsMax int64 = 10_000_000
	// PacketListMax bounds the packets of a list.
	PacketListMax = 100_000
	// WavesMax bounds a campaign's release times. A claim may have to check
	// all of them.
	WavesMax = 256
)

var (
	// ErrClosed means the campaign is closed.
	ErrClosed = errors.New("models: campaign is closed")
	// ErrKeyMismatch means the idempotency key belongs to another request.
	ErrKeyMismatch = errors.New("models: idempotency key used for another request")
)

// Packet is one red packet of an operator's list.
type Packet struct {
	ID     string
	Amount int64 // minor units, 1 to AmountMax
}

// Split requests packets made from one amount, in minor units.
type Split struct {
	Count    int64
	Amount   int64
	Method   string // double_mean, random_cut or even
	Min, Max int64  // of a packet; a Min of 0 is 1, a Max of 0 is no bound
}

// PacketBatch requests packets for a campaign, all or none: those of List, or
// those that Split makes.
type PacketBatch struct {
	List      []Packet
	Split     *Split
	ReleaseAt *time.Time // none can be claimed earlier; nil: at once
	Key       string     // the client's idempotency key; "": none
}

// PacketBatchRow is a row of packet_batches: a request that added packets.
type PacketBatchRow struct {
	CampaignID    string     `gorm:"primaryKey" json:"-"`
	FirstPosition int64      `gorm:"primaryKey;autoIncrement:false" json:"first_position"`
	Packets       int64      `json:"packets"`
	Amount        int64      `json:"amount"` // sum of all, minor units
	ReleaseAt     *time.Time `json:"release_at,omitempty"`
	RequestKey    string     `json:"request_key"`
	Digest        string     `json:"digest"` // of the request
	CreatedAt     time.Time  `json:"created_at"`
}

// TableName names the table for gorm.
func (PacketBatchRow) TableName() string { return "packet_batches" }

// AddedPackets is the result of a PacketBatch.
type AddedPackets struct {
	Count    int64
	Amount   int64 // the sum, in minor units
	Replayed bool  // an earlier request with the same key added them
}

// CheckList returns nil, or a *FieldError for the first invalid packet of
// List. It doesn't check against the campaign's packets.
func (b *PacketBatch) CheckList() error {
	if len(b.List) == 0 || len(b.List) > PacketListMax {
		return refuse("packets", "must be 1 to %d", PacketListMax)
	}
	indexes := make(map[string]int, len(b.List))
	sum := int64(0)
	for i := range b.List {
		p := &b.List[i]
		if err := CheckCampaignID(p.ID); err != nil {
			return refuse(PacketField(i, "id"), "%s", reason(err))
		}
		if isSplitPacketID(p.ID) {
			return refuse(PacketField(i, "id"), "must not be _ and %d digits: those are the ids of packets that a split makes", splitDigits)
		}
		if p.Amount < 1 || p.Amount > AmountMax {
			return refuse(PacketField(i, "amount"), "must be 1 to %d", AmountMax)
		}
		if first, twice := indexes[p.ID]; twice {
			return refuse(PacketField(i, "id"), "is the same as that of packets[%d]", first)
		}
		indexes[p.ID] = i
		sum += p.Amount
		if sum > AmountMax {
			return refuse(PacketField(i, "amount"), "makes the amounts add up to more than %d", AmountMax)
		}
	}
	return nil
}

// PacketField names a field of a packet in a list, for a FieldError.
func PacketField(i int, name string) string { return "packets[" + strconv.Itoa(i) + "]." + name }

// splitDigits is the number of digits of PacketsMax.
const splitDigits = 8

// SplitPacketID is the id of the packet that a split made at this position.
// The ids sort by position.
func SplitPacketID(position int64) string { return fmt.Sprintf("_%0*d", splitDigits, position) }

func isSplitPacketID(id string) bool {
	if len(id) != 1+splitDigits || id[0] != '_' {
		return false
	}
	for i := 1; i < len(id); i++ {
		if id[i] < '0' || id[i] > '9' {
			return false
		}
	}
	return true
}
