package operator

import (
	"strconv"

	"dibs/api/wire"
	"dibs/models"
)

// PacketsBodyMax is the largest body of packets, in bytes: 100,000 packets whose ids and amounts are as long as they may be.
const PacketsBodyMax = 16 << 20

// packetsBody is the body of POST packets, as the OpenAPI document has it: a list, or what to split.
type packetsBody struct {
	Packets   []packetBody `json:"packets,omitempty" minItems:"1" maxItems:"100000" nullable:"false" doc:"a list of packets; excludes count, amount and split"`
	Count     int64        `json:"count,omitempty" minimum:"1" maximum:"1000000" doc:"number of packets to split amount into"`
	Amount    int64        `json:"amount,omitempty" minimum:"1" maximum:"999999999999999" doc:"their sum, in minor units of ISO 4217"`
	Split     string       `json:"split,omitempty" enum:"double_mean,random_cut,even"`
	Min       int64        `json:"min,omitempty" minimum:"0" maximum:"999999999999999" doc:"no packet is smaller; 1 unless sent"`
	Max       int64        `json:"max,omitempty" minimum:"0" maximum:"999999999999999" doc:"no packet is larger; 0 is no bound"`
	ReleaseAt *models.Time `json:"release_at,omitempty" doc:"time before which none of these packets is given; default at once"`
}

// packetBody is one packet of a list, as the OpenAPI document has it.
type packetBody struct {
	ID     string `json:"id" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9._-]+$" doc:"unique in the campaign"`
	Amount int64  `json:"amount" minimum:"1" maximum:"999999999999999" doc:"in minor units"`
}

// packetsAdded is the answer.
type packetsAdded struct {
	Count  int64 `json:"count"`
	Amount int64 `json:"amount" doc:"sum of the packets, in minor units"`
}

// packetsSent is what a body holds. A field that is nil was not sent.
type packetsSent struct {
	packets                 []models.Packet
	releaseAt, split        *string
	count, amount, min, max *int64
}

func (s *packetsSent) fields() []wire.Field {
	return []wire.Field{
		wire.List("packets", models.PacketListMax, &s.packets, packetFields, checkPacket),
		wire.Text("release_at", &s.releaseAt),
		wire.OptionalInteger("count", &s.count, 1, models.PacketsMax),
		wire.OptionalInteger("amount", &s.amount, 1, models.AmountMax),
		wire.Text("split", &s.split),
		wire.OptionalInteger("min", &s.min, 0, models.AmountMax),
		wire.OptionalInteger("max", &s.max, 0, models.AmountMax),
	}
}

func packetFields(packet *models.Packet) []wire.Field {
	return []wire.Field{
		wire.ID("id", &packet.ID, models.CheckCampaignID), wire.Integer("amount", &packet.Amount, 1, models.AmountMax),
	}
}

// checkPacket refuses the whole list when something is wrong with a packet.
func checkPacket(packet *models.Packet, i int, p *wire.Problem) *wire.Problem {
	switch {
	case p != nil:
	case packet.ID == "":
		p = wire.Invalid("id", "is required")
	case packet.Amount == 0:
		p = wire.Invalid("amount", "is required")
	default:
		return nil
	}
	return wire.Within("packets["+strconv.Itoa(i)+"]", p)
}

// decodePackets reads the body of POST packets. Whether the packets of a list differ is checked where they are stored.
func decodePackets(body []byte) (models.PacketBatch, *wire.Problem) {
	var sent packetsSent
	p := wire.ReadObject(body, sent.fields())
	if p == nil {
		p = sent.missing()
	}
	if p != nil {
		return models.PacketBatch{}, p
	}
	batch := models.PacketBatch{List: sent.packets}
	batch.ReleaseAt, p = parseTime("release_at", sent.releaseAt)
	if p != nil || sent.packets != nil {
		return batch, p
	}
	batch.Split = &models.Split{
		Count: *sent.count, Amount: *sent.amount, Method: *sent.split, Min: orZero(sent.min), Max: orZero(sent.max),
	}
	return batch, nil
}

// missing refuses what is neither a list nor a split.
func (s *packetsSent) missing() *wire.Problem {
	for _, f := range []struct {
		name           string
		sent, required bool
	}{
		{"count", s.count != nil, true}, {"amount", s.amount != nil, true}, {"split", s.split != nil, true},
		{"min", s.min != nil, false}, {"max", s.max != nil, false},
	} {
		switch {
		case s.packets != nil && f.sent:
			return wire.Invalid(f.name, "must be left out of a list")
		case s.packets == nil && !f.sent && f.required:
			return wire.Invalid(f.name, "is required, or a list of packets")
		}
	}
	return nil
}
