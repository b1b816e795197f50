package operator

import (
	"strconv"
	"strings"

	"dibs/api/wire"
	"dibs/models"
)

// PacketsBodyMax is the largest body of packets, in bytes: 100,000 packets whose ids and amounts are as long as they may be.
const PacketsBodyMax = 16 << 20

// packetsBody is the body of POST packets, as the OpenAPI document has it: a list, or what to split.
type packetsBody struct {
	Packets   []packetBody `json:"packets,omitempty" minItems:"1" maxItems:"100000" nullable:"false" doc:"the operator's own packets; without count, amount and split"`
	Count     int64        `json:"count,omitempty" minimum:"1" maximum:"1000000" doc:"packets to make of amount"`
	Amount    int64        `json:"amount,omitempty" minimum:"1" maximum:"999999999999999" doc:"what they add up to, in minor units"`
	Split     string       `json:"split,omitempty" enum:"double_mean,random_cut,even"`
	Min       int64        `json:"min,omitempty" minimum:"0" maximum:"999999999999999" default:"1" doc:"no packet is smaller"`
	Max       int64        `json:"max,omitempty" minimum:"0" maximum:"999999999999999" doc:"no packet is larger; 0 is no bound"`
	ReleaseAt *models.Time `json:"release_at,omitempty" doc:"none of these packets is taken before; default at once"`
}

// packetBody is one packet of a list, as the OpenAPI document has it.
type packetBody struct {
	ID     string `json:"id" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9._-]+$" doc:"unique in the campaign"`
	Amount int64  `json:"amount" minimum:"1" maximum:"999999999999999" doc:"in minor units"`
}

// packetsAdded is the answer.
type packetsAdded struct {
	Count  int64 `json:"count"`
	Amount int64 `json:"amount" doc:"what the packets add up to, in minor units"`
}

var (
	packetsFields = []string{"packets", "release_at", "count", "amount", "split", "min", "max"}
	packetFields  = []string{"id", "amount"}
)

// decodePackets reads the body of POST packets. That a list is of different packets is checked where it is stored.
func decodePackets(body []byte) (models.PacketBatch, *wire.Problem) {
	var batch models.PacketBatch
	var split models.Split
	sent := make([]bool, len(packetsFields))
	p := wire.ScanObject(body, packetsFields, func(s *wire.Scanner, i int) (p *wire.Problem) {
		sent[i] = true
		switch name := packetsFields[i]; name {
		case "packets":
			batch.List, p = readPacketList(s)
		case "release_at":
			var text []byte
			if text, p = s.Str(name); p == nil {
				batch.ReleaseAt, p = parseTime(name, new(string(text)))
			}
		case "count":
			split.Count, p = s.Integer(name, 1, models.PacketsMax)
		case "split":
			var text []byte
			text, p = s.Str(name)
			split.Method = string(text)
		case "amount":
			split.Amount, p = s.Integer(name, 1, models.AmountMax)
		case "min":
			split.Min, p = s.Integer(name, 0, models.AmountMax)
		default:
			split.Max, p = s.Integer(name, 0, models.AmountMax)
		}
		return p
	})
	if p != nil {
		return batch, p
	}
	if !sent[0] {
		batch.Split = &split
	}
	return batch, whatIsMissing(sent)
}

// whatIsMissing refuses what is neither a list nor a split, by what was sent of packetsFields.
func whatIsMissing(sent []bool) *wire.Problem {
	const list, firstOfSplit, firstOfBounds = 0, 2, 5
	for i := firstOfSplit; i < len(packetsFields); i++ {
		switch {
		case sent[list] && sent[i]:
			return wire.Invalid(packetsFields[i], "must be left out of a list")
		case !sent[list] && !sent[i] && i < firstOfBounds:
			return wire.Invalid(packetsFields[i], "is required, or a list of packets")
		}
	}
	return nil
}

// readPacketList reads a list.
func readPacketList(s *wire.Scanner) ([]models.Packet, *wire.Problem) {
	list := []models.Packet{}
	p := s.Array("packets", func(i int) *wire.Problem {
		if i == models.PacketListMax {
			return wire.Invalid("packets", "must be 1 to "+strconv.Itoa(models.PacketListMax))
		}
		packet, p := readPacket(s)
		list = append(list, packet)
		return within("packets["+strconv.Itoa(i)+"]", p)
	})
	return list, p
}

func readPacket(s *wire.Scanner) (packet models.Packet, p *wire.Problem) {
	if !s.AtObject() {
		return packet, s.WrongType("", "an object")
	}
	p = s.Object(packetFields, func(s *wire.Scanner, i int) (p *wire.Problem) {
		if i == 0 {
			packet.ID, p = s.CampaignID(packetFields[i])
			return p
		}
		packet.Amount, p = s.Integer(packetFields[i], 1, models.AmountMax)
		return p
	})
	switch {
	case p != nil:
		return packet, p
	case packet.ID == "":
		return packet, wire.Invalid("id", "is required")
	case packet.Amount == 0:
		return packet, wire.Invalid("amount", "is required")
	}
	return packet, nil
}

// within has a refusal say in which element it is.
func within(element string, p *wire.Problem) *wire.Problem {
	if p == nil || p.Code != wire.CodeInvalid {
		return p
	}
	reason := strings.TrimPrefix(p.Detail, p.Field+": ")
	if p.Field != "" {
		element += "." + p.Field
	}
	return wire.Invalid(element, reason)
}
