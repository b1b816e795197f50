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
	Count     *int64       `json:"count,omitempty" nullable:"false" minimum:"1" maximum:"1000000" doc:"number of packets to split amount into"`
	Amount    *int64       `json:"amount,omitempty" nullable:"false" minimum:"1" maximum:"999999999999999" doc:"their sum, in minor units of ISO 4217"`
	Split     *string      `json:"split,omitempty" nullable:"false" enum:"double_mean,random_cut,even"`
	Min       *int64       `json:"min,omitempty" nullable:"false" minimum:"0" maximum:"999999999999999" doc:"no packet is smaller; 1 unless sent"`
	Max       *int64       `json:"max,omitempty" nullable:"false" minimum:"0" maximum:"999999999999999" doc:"no packet is larger; 0 is no bound"`
	ReleaseAt *string      `json:"release_at,omitempty" nullable:"false" format:"date-time" doc:"time before which none of these packets is given; default at once"`

	list []models.Packet // what Packets holds
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

func (b *packetsBody) fields() []wire.Field {
	return wire.FieldsOf(b, wire.List("packets", models.PacketListMax, &b.list, packetFields, checkPacket))
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
	var sent packetsBody
	p := wire.ReadObject(body, sent.fields())
	if p == nil {
		p = sent.missing()
	}
	if p != nil {
		return models.PacketBatch{}, p
	}
	batch := models.PacketBatch{List: sent.list}
	batch.ReleaseAt, p = parseTime("release_at", sent.ReleaseAt)
	if p != nil || sent.list != nil {
		return batch, p
	}
	batch.Split = &models.Split{
		Count: *sent.Count, Amount: *sent.Amount, Method: *sent.Split, Min: orZero(sent.Min), Max: orZero(sent.Max),
	}
	return batch, nil
}

// missing refuses what is neither a list nor a split.
func (b *packetsBody) missing() *wire.Problem {
	for _, f := range []struct {
		name           string
		sent, required bool
	}{
		{"count", b.Count != nil, true}, {"amount", b.Amount != nil, true}, {"split", b.Split != nil, true},
		{"min", b.Min != nil, false}, {"max", b.Max != nil, false},
	} {
		switch {
		case b.list != nil && f.sent:
			return wire.Invalid(f.name, "must be left out of a list")
		case b.list == nil && !f.sent && f.required:
			return wire.Invalid(f.name, "is required, or a list of packets")
		}
	}
	return nil
}
