package apply

import (
	"errors"

	"dibs/internal/migrations"
	"dibs/internal/sqlstore"
	"dibs/models/event"
	"dibs/models/stored"

	"gorm.io/gorm/clause"
)

// errPacketTaken reports a packet that the claim can't have: it is
// missing, taken, returned to its sender, or of another amount.
var errPacketTaken = errors.New("apply: packet cannot be taken")

// The claims lead the join, so that only their
// packets are locked. An owner is set once.
const (
	setOwnersMySQL = "UPDATE claims c STRAIGHT_JOIN packets p ON p.campaign_id = c.campaign_id AND p.id = c.packet_id" +
		" SET p.claim_id = c.id, p.user_id = c.user_id" +
		" WHERE p.claim_id IS NULL AND p.returned_at IS NULL AND p.amount = c.amount AND c.id IN "
	setOwnersSQLite = "UPDATE packets SET claim_id = c.id, user_id = c.user_id FROM claims c" +
		" WHERE packets.campaign_id = c.campaign_id AND packets.id = c.packet_id" +
		" AND packets.claim_id IS NULL AND packets.returned_at IS NULL AND packets.amount = c.amount AND c.id IN "
)

// setOwners assigns packets to the inserted claims.
// A claim that can't have its packet is parked, or dropped if unanswered.
func (a *application) setOwners() error {
	var ids []any
	for _, r := range a.written {
		if r.PacketID != "" {
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	query := setOwnersMySQL
	if a.tx.Name() == migrations.SQLite {
		query = setOwnersSQLite
	}
	set, err := sqlstore.Exec(a.ctx, a.tx, query+sqlstore.Marks(len(ids)), ids...)
	if err != nil || set == int64(len(ids)) {
		return err
	}
	without, err := a.withoutPacket(ids)
	if err != nil {
		return err
	}
	var dropped []*event.Raw
	for _, r := range a.written {
		switch {
		case without[r.ID] && r.IsAwaited():
			dropped = append(dropped, r)
			delete(without, r.ID)
		case without[r.ID]:
			a.park(r, parkedPacket, "packet "+r.PacketID+
				" is of another claim, returned to its sender, holds another amount, or does not exist")
		}
	}
	if len(without) > 0 {
		err = a.remove(without)
	}
	return errors.Join(err, a.drop(dropped))
}

// withoutPacket returns the claims that do not own their packet.
func (a *application) withoutPacket(ids []any) (without map[string]bool, err error) {
	without = make(map[string]bool, len(ids))
	for _, id := range ids {
		without[id.(string)] = true //nolint:forcetypeassert // they are
	}
	var owned []string
	err = a.tx.Model(&stored.PacketRow{}).Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).
		Where("claim_id IN ?", ids).Pluck("claim_id", &owned).Error
	if err != nil {
		return nil, err
	}
	for _, id := range owned {
		delete(without, id)
	}
	return without, nil
}
