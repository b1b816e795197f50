package writer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/migrations"
)

// errPacketTaken says that a batch holds a claim whose packet is not there, is another claim's, went back to the sender or holds
// another amount.
var errPacketTaken = errors.New("syncer: packet not there to be taken")

// The claims of the batch lead the join, so that just their packets are locked. An owner is set once.
const (
	setOwnersMySQL = "UPDATE claims c STRAIGHT_JOIN packets p ON p.campaign_id = c.campaign_id AND p.id = c.packet_id" +
		" SET p.claim_id = c.id, p.user_id = c.user_id" +
		" WHERE p.claim_id IS NULL AND p.returned_at IS NULL AND p.amount = c.amount AND c.id IN ("
	setOwnersSQLite = "UPDATE packets SET claim_id = c.id, user_id = c.user_id FROM claims c" +
		" WHERE packets.campaign_id = c.campaign_id AND packets.id = c.packet_id" +
		" AND packets.claim_id IS NULL AND packets.returned_at IS NULL AND packets.amount = c.amount AND c.id IN ("
)

// setOwners gives the packets of a batch, whose claims are in already, to their users. It fails with errPacketTaken when one of them
// can't have it.
func setOwners(ctx context.Context, tx *sql.Tx, dialect string, rows []*row) error {
	var ids []any
	for _, r := range rows {
		if r.event.PacketID != "" {
			ids = append(ids, r.event.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	head := setOwnersMySQL
	if dialect == migrations.SQLite {
		head = setOwnersSQLite
	}
	query := head + "?" + strings.Repeat(",?", len(ids)-1) + ")" //nolint:gosec // question marks only
	result, err := tx.ExecContext(ctx, query, ids...)
	if err != nil {
		return err
	}
	set, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if set != int64(len(ids)) {
		return sqlstore.Final(fmt.Errorf("%w: %d of %d were", errPacketTaken, set, len(ids)))
	}
	return nil
}

// packetState is what MySQL says of a packet.
type packetState struct {
	amount   int64
	claimID  string
	returned bool
}

// parkPacketless parks claims whose packet is not there to be taken. Of two claims of one packet in a batch the first stays.
func (s *conflicts) parkPacketTaken() (func(*row) (bool, error), error) {
	there := make(map[packetName]packetState)
	for campaignID, ids := range packetsOfRows(s.rows) {
		query := "SELECT id, amount, COALESCE(claim_id, ''), returned_at IS NOT NULL FROM packets WHERE campaign_id = ? AND id IN (?" +
			strings.Repeat(",?", len(ids)-1) + ")"
		err := s.read(query, append([]any{campaignID}, ids...), func(scan func(...any) error) error {
			name, p := packetName{campaignID: campaignID}, packetState{}
			err := scan(&name.id, &p.amount, &p.claimID, &p.returned)
			there[name] = p
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return func(r *row) (bool, error) {
		e := &r.event
		if e.PacketID == "" {
			return true, nil
		}
		name := packetName{e.CampaignID, e.PacketID}
		p, is := there[name]
		why := ""
		switch {
		case !is:
			why = "the campaign has no packet " + e.PacketID
		case p.claimID != "" && p.claimID != e.ID:
			why = fmt.Sprintf("claim %s has packet %s", p.claimID, e.PacketID)
		case p.returned:
			why = fmt.Sprintf("packet %s went back to the sender", e.PacketID)
		case e.Amount == nil || *e.Amount != p.amount:
			why = fmt.Sprintf("packet %s holds another amount, %d", e.PacketID, p.amount)
		}
		if why != "" {
			return false, s.w.park(s.ctx, r, parkedPacket, why)
		}
		p.claimID = e.ID
		there[name] = p
		return true, nil
	}, nil
}

type packetName struct{ campaignID, id string }

func packetsOfRows(rows []*row) map[string][]any {
	ids := make(map[string][]any)
	for _, r := range rows {
		if r.event.PacketID != "" {
			ids[r.event.CampaignID] = append(ids[r.event.CampaignID], r.event.PacketID)
		}
	}
	return ids
}
