package event

import "dibs/models"

// PushedPackets are the packets of one lot that one request added, as in the
// claim stream.
type PushedPackets struct {
	Batch models.PacketBatchRow `json:"batch"`
	// the stream has the lot's packets up to this position
	Upto    int64          `json:"upto"`
	Packets []PushedPacket `json:"packets"`
}

// PushedPacket is one packet of PushedPackets.
type PushedPacket struct {
	Position int64  `json:"position"`
	ID       string `json:"id"`
	Amount   int64  `json:"amount"` // minor units
}

func (p *PushedPackets) isValid() bool {
	if p == nil || p.Batch.FirstPosition < 1 || p.Upto > models.PacketsMax {
		return false
	}
	for _, one := range p.Packets {
		if one.Position < 1 || one.Position > p.Upto || models.CheckCampaignID(one.ID) != nil || one.Amount < 0 || one.Amount > models.AmountMax {
			return false
		}
	}
	return true
}
