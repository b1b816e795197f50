package operator

import (
	"dibs/api/wire"
	"dibs/models"
)

// PacketsBodyMax bounds a body of packets, in bytes: 100,000 packets with
// the longest ids and amounts.
const PacketsBodyMax = 16 << 20

// packetsBody is a list, or an amount to split.
type packetsBody struct {
	Packets   []packetBody `json:"packets,omitempty" minItems:"1" maxItems:"100000" nullable:"false" doc:"a list of packets; excludes count, amount and split"`
	Count     *int64       `json:"count,omitempty" nullable:"false" minimum:"1" maximum:"1000000" doc:"number of packets to split amount into"`
	Amount    *int64       `json:"amount,omitempty" nullable:"false" minimum:"1" maximum:"999999999999999" doc:"their sum, in minor units of ISO 4217"`
	Split     *string      `json:"split,omitempty" nullable:"false" enum:"double_mean,random_cut,even"`
	Min       *int64       `json:"min,omitempty" nullable:"false" minimum:"0" maximum:"999999999999999" doc:"no packet is smaller; 1 unless sent"`
	Max       *int64       `json:"max,omitempty" nullable:"false" minimum:"0" maximum:"999999999999999" doc:"no packet is larger; 0 is no bound"`
	ReleaseAt *string      `json:"release_at,omitempty" nullable:"false" format:"date-time" doc:"time before which none of these packets is given; default at once"`
}

type packetBody struct {
	ID     string `json:"id" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9._-]+$" doc:"unique in the campaign"`
	Amount int64  `json:"amount" minimum:"1" maximum:"999999999999999" doc:"in minor units"`
}

type packetsAdded struct {
	Count  int64 `json:"count"`
	Amount int64 `json:"amount" doc:"sum of the packets, in minor units"`
}

func (b *packetsBody) fields() []wire.Field {
	return wire.FieldsOf(b, wire.List("packets", models.PacketListMax, &b.Packets))
}

// decodePackets leaves the check for duplicate packets to the store.
func decodePackets(body []byte) (models.PacketBatch, *wire.Problem) {
	var sent packetsBody
	p := wire.ReadObject(body, sent.fields())
	if p == nil {
		p = sent.missing()
	}
	if p != nil {
		return models.PacketBatch{}, p
	}
	var batch models.PacketBatch
	batch.ReleaseAt, p = parseTime("release_at", sent.ReleaseAt)
	if sent.Packets != nil {
		batch.List = make([]models.Packet, len(sent.Packets))
		for i, one := range sent.Packets {
			batch.List[i] = models.Packet{ID: one.ID, Amount: one.Amount}
		}
		return batch, p
	}
	batch.Split = &models.Split{
		Count: *sent.Count, Amount: *sent.Amount, Method: *sent.Split, Min: orZero(sent.Min), Max: orZero(sent.Max),
	}
	return batch, p
}

// missing refuses a body that is neither a list nor a split.
func (b *packetsBody) missing() *wire.Problem {
	for _, f := range []struct {
		name           string
		sent, required bool
	}{
		{"count", b.Count != nil, true}, {"amount", b.Amount != nil, true}, {"split", b.Split != nil, true},
		{"min", b.Min != nil, false}, {"max", b.Max != nil, false},
	} {
		switch {
		case b.Packets != nil && f.sent:
			return wire.Invalid(f.name, "must be left out of a list")
		case b.Packets == nil && !f.sent && f.required:
			return wire.Invalid(f.name, "is required, or a list of packets")
		}
	}
	return nil
}
