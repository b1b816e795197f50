package writer

import (
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/models"
)

// applyMoves writes the halves of moves that MySQL lacks. A move is a row, whose debit makes it and whose credit ends it.
// What left the total of a campaign has no second half.
func (a *application) applyMoves(rows []*models.RawEvent) error {
	for _, r := range rows {
		apply := a.credited
		if r.Type == models.EventUnitsDebited {
			apply = a.debited
		}
		isNew, err := apply(&r.Event)
		switch {
		case err != nil:
			return fmt.Errorf("stock_moves: %w", err)
		case isNew:
			a.moves = append(a.moves, r)
		default:
			a.known++
		}
	}
	return nil
}

func (a *application) debited(e *models.Event) (isNew bool, err error) {
	isNew, err = a.insertMove(e, e.Shard, e.Peer)
	if isNew && e.Peer == 0 {
		_, err = a.creditMove(e)
	}
	return isNew, err
}

// credited ends a move. A credit whose debit nobody has proves it: MySQL was restored and reads the giver's stream later, or
// both servers lost the debit. The giver has the units no more, and its total may be below 0 until MySQL has read what it got.
func (a *application) credited(e *models.Event) (isNew bool, err error) {
	isProof, err := a.insertMove(e, e.Peer, e.Shard)
	if err != nil {
		return false, err
	}
	if isProof && e.Peer > 0 {
		debit := models.Event{Type: models.EventUnitsDebited, CampaignID: e.CampaignID, Shard: e.Peer, Quantity: e.Quantity}
		a.moves = append(a.moves, &models.RawEvent{Event: debit})
		if err := a.reloadGiver(e); err != nil {
			return false, err
		}
	}
	return a.creditMove(e)
}

// reloadGiver notes that the giver of a proven move is to be loaded again: Redis may have forgotten the debit as well. The note stands in
// the move, as somebody may lock the giver's row.
func (a *application) reloadGiver(e *models.Event) error {
	var epoch int64
	err := a.tx.QueryRowContext(a.ctx, "SELECT COALESCE(MAX(epoch), 0) FROM lots WHERE campaign_id = ? AND shard = ?", e.CampaignID, e.Peer).Scan(&epoch)
	if err == nil {
		_, err = a.tx.ExecContext(a.ctx, "UPDATE stock_moves SET reload_upto = ? WHERE id = ?", epoch, e.Move)
	}
	return err
}

// insertMove reports whether MySQL had no row of the move. It reads none before: two flushes at once would lock the gap.
func (a *application) insertMove(e *models.Event, from, to int) (isNew bool, err error) {
	changed, err := sqlstore.Exec(a.ctx, a.tx, "INSERT INTO stock_moves (id, campaign_id, from_shard, to_shard, units, debited_at)"+
		" VALUES (?, ?, ?, ?, ?, ?)"+orKnown(a.tx.Name()), e.Move, e.CampaignID, from, to, e.Quantity, e.At.UTC().Format(sqlstore.TimeLayout))
	return changed > 0, err
}

func (a *application) creditMove(e *models.Event) (isNew bool, err error) {
	changed, err := sqlstore.Exec(a.ctx, a.tx, "UPDATE stock_moves SET credited_at = ? WHERE id = ? AND credited_at IS NULL",
		e.At.UTC().Format(sqlstore.TimeLayout), e.Move)
	return changed > 0, err
}
