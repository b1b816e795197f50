package writer

import (
	"context"
	"errors"
	"fmt"

	"dibs/internal/migrations"
	"dibs/internal/sqlstore"
)

// errPacketTaken says that a batch holds a claim whose packet does not exist, belongs to another claim, returned to the sender,
// or holds another amount.
var errPacketTaken = errors.New("writer: packet cannot be taken")

// The claims of the batch lead the join, so that only their packets are locked. An owner is set once.
const (
	setOwnersMySQL = "UPDATE claims c STRAIGHT_JOIN packets p ON p.campaign_id = c.campaign_id AND p.id = c.packet_id" +
		" SET p.claim_id = c.id, p.user_id = c.user_id" +
		" WHERE p.claim_id IS NULL AND p.returned_at IS NULL AND p.amount = c.amount AND c.id IN "
	setOwnersSQLite = "UPDATE packets SET claim_id = c.id, user_id = c.user_id FROM claims c" +
		" WHERE packets.campaign_id = c.campaign_id AND packets.id = c.packet_id" +
		" AND packets.claim_id IS NULL AND packets.returned_at IS NULL AND packets.amount = c.amount AND c.id IN "
)

// setOwners gives the packets of a batch, whose claims are inserted already, to their users. It fails with errPacketTaken when one
// of them cannot be given.
func setOwners(ctx context.Context, tx *sqlstore.Tx, rows []*row) error {
	var ids []any
	for _, r := range rows {
		if r.event.PacketID != "" {
			ids = append(ids, r.event.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	query := setOwnersMySQL
	if tx.Name() == migrations.SQLite {
		query = setOwnersSQLite
	}
	set, err := sqlstore.Exec(ctx, tx, query+sqlstore.Marks(len(ids)), ids...)
	if err != nil {
		return err
	}
	if set != int64(len(ids)) {
		return sqlstore.Final(fmt.Errorf("%w: %d of %d were", errPacketTaken, set, len(ids)))
	}
	return nil
}

// packetKey names a packet.
type packetKey struct{ campaignID, id string }

// packetState is what MySQL says of a packet.
type packetState struct {
	amount   int64
	claimID  string // "": no one has it
	returned bool
}

// findPacketTaken finds claims whose packet they cannot have. Of two claims of one packet in a batch the first stays.
func (s *conflicts) findPacketTaken() (func(*row) finding, error) {
	packets, err := s.packets()
	return func(r *row) finding {
		e := &r.event
		if e.PacketID == "" {
			return finding{}
		}
		key := packetKey{e.CampaignID, e.PacketID}
		p, exists := packets[key]
		reason := ""
		switch {
		case !exists:
			reason = "the campaign has no packet " + e.PacketID
		case p.claimID != "" && p.claimID != e.ID:
			reason = fmt.Sprintf("claim %s has packet %s", p.claimID, e.PacketID)
		case p.returned:
			reason = fmt.Sprintf("packet %s returned to the sender", e.PacketID)
		case e.Amount == nil || *e.Amount != p.amount:
			reason = fmt.Sprintf("packet %s holds another amount, %d", e.PacketID, p.amount)
		}
		if reason != "" {
			return finding{kind: parkedPacket, reason: reason}
		}
		p.claimID = e.ID
		packets[key] = p
		return finding{}
	}, err
}

// packets reads the packets of the rows.
func (s *conflicts) packets() (map[packetKey]packetState, error) {
	ids := make(map[string][]any)
	for _, r := range s.rows {
		if r.event.PacketID != "" {
			ids[r.event.CampaignID] = append(ids[r.event.CampaignID], r.event.PacketID)
		}
	}
	packets := make(map[packetKey]packetState)
	for campaignID, ids := range ids {
		query := "SELECT id, amount, COALESCE(claim_id, ''), returned_at IS NOT NULL FROM packets WHERE campaign_id = ? AND id IN " +
			sqlstore.Marks(len(ids))
		err := s.read(query, append([]any{campaignID}, ids...), func(scan func(...any) error) error {
			key := packetKey{campaignID: campaignID}
			p := packetState{}
			err := scan(&key.id, &p.amount, &p.claimID, &p.returned)
			packets[key] = p
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return packets, nil
}
