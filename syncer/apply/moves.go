package apply

import (
	"slices"

	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/adder"

	"gorm.io/gorm/clause"
)

// applyMoves writes new halves of moves. A debit inserts the row, and a
// credit ends it. Units that leave the campaign have no credit.
func (a *application) applyMoves(rows []*event.Raw) error {
	for _, r := range rows {
		apply := a.credited
		if r.Type == event.UnitsDebited {
			apply = a.debited
		}
		if a.isSold(&r.Event) {
			a.Known++
			continue
		}
		isNew, err := apply(&r.Event)
		switch {
		case err != nil:
			return err
		case isNew:
			a.moves = append(a.moves, r)
		default:
			a.Known++
		}
	}
	return nil
}

// isSold reports whether Redis lost claims and then gave their units to
// another shard. No shard has these units: a debit is credited once it is
// applied. The giver is loaded again, so a debit too many may be ignored.
func (a *application) isSold(e *event.Event) bool {
	if e.Type != event.UnitsDebited || e.Peer == 0 {
		return false
	}
	lot := adder.LotOf(e)
	return a.isRecovering(lot) && a.freeBut(lot)-a.lots[lot].Lost < e.Quantity
}

func (a *application) isRecovering(lot adder.Lot) bool {
	return slices.ContainsFunc(a.b.Streams, func(s adder.Taken) bool {
		return s.From.State == event.PartitionRecovering && s.Sums[lot] != nil
	})
}

func (a *application) debited(e *event.Event) (isNew bool, err error) {
	isNew, err = a.insertMove(e, e.Shard, e.Peer)
	if isNew && e.Peer == 0 {
		_, err = a.creditMove(e)
	}
	return isNew, err
}

// credited ends a move. A credit without a debit proves it: both
// servers lost the debit, or a restored MySQL will read the giver's
// stream later. Either way the giver no longer has the units; until
// then its total may be negative.
func (a *application) credited(e *event.Event) (isNew bool, err error) {
	isProof, err := a.insertMove(e, e.Peer, e.Shard)
	if err != nil {
		return false, err
	}
	if isProof && e.Peer > 0 {
		debit := event.Event{Type: event.UnitsDebited, CampaignID: e.CampaignID, Shard: e.Peer, Quantity: e.Quantity}
		a.moves = append(a.moves, &event.Raw{Event: debit})
		if err := a.reloadGiver(e); err != nil {
			return false, err
		}
	}
	return a.creditMove(e)
}

// reloadGiver marks the giver of a proven move: Redis may have lost the debit
// as well. The mark is in the move, as the giver's row may be locked.
func (a *application) reloadGiver(e *event.Event) error {
	var epoch int64
	err := a.tx.Table("lots").Where("campaign_id = ? AND shard = ?", e.CampaignID, e.Peer).
		Select("COALESCE(MAX(epoch), 0)").Scan(&epoch).Error
	if err != nil {
		return err
	}
	return a.tx.Model(&stored.StockMove{ID: e.Move}).Update("reload_upto", epoch).Error
}

// insertMove reports whether the move is
// new. A read before it would lock the gap.
func (a *application) insertMove(e *event.Event, from, to int) (isNew bool, err error) {
	put := a.tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&stored.StockMove{
		ID: e.Move, CampaignID: e.CampaignID, FromShard: from, ToShard: to, Units: e.Quantity, DebitedAt: e.At.Time,
	})
	return put.RowsAffected > 0, put.Error
}

func (a *application) creditMove(e *event.Event) (isNew bool, err error) {
	done := a.tx.Model(&stored.StockMove{}).Where("id = ? AND credited_at IS NULL", e.Move).Update("credited_at", e.At.Time)
	return done.RowsAffected > 0, done.Error
}
