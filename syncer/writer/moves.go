package writer

import (
	"fmt"
	"slices"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/adder"
)

// move is a row of stock_moves.
type move struct{ isCredited bool }

// applyMoves writes the halves of moves that MySQL lacks. A move is a row, whose debit makes it and whose credit ends it. What left the
// total of a campaign has no second half.
func (a *application) applyMoves(rows []*models.RawEvent) error {
	if len(rows) == 0 {
		return nil
	}
	known, err := a.readMoves(rows)
	if err != nil {
		return fmt.Errorf("stock_moves: %w", err)
	}
	isDebit := func(r *models.RawEvent) bool { return r.Type == models.EventUnitsDebited }
	slices.SortStableFunc(rows, func(x, y *models.RawEvent) int { // debits come before their credits
		switch {
		case isDebit(x) == isDebit(y):
			return 0
		case isDebit(x):
			return -1
		}
		return 1
	})
	for _, r := range rows {
		err := error(nil)
		row, isKnown := known[r.Move]
		switch {
		case isDebit(r) && isKnown, !isDebit(r) && isKnown && row.isCredited:
			a.known++
			continue
		case isDebit(r):
			err = a.debited(&r.Event)
		case isKnown:
			err = a.credited(&r.Event)
		default:
			err = a.proven(&r.Event)
		}
		if err != nil {
			return fmt.Errorf("stock_moves: %w", err)
		}
		known[r.Move] = move{isCredited: !isDebit(r) || r.Peer == 0}
		a.moves = append(a.moves, r)
	}
	return nil
}

// readMoves reads the rows of some moves, and locks them.
func (a *application) readMoves(rows []*models.RawEvent) (map[string]move, error) {
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.Move
	}
	known := make(map[string]move, len(rows))
	query := "SELECT id, credited_at IS NOT NULL FROM stock_moves WHERE id IN " + sqlstore.Marks(len(ids)) + sqlstore.ForUpdate(a.tx)
	err := sqlstore.ScanAll(a.ctx, a.tx, query, sqlstore.Args(ids), func(scan func(...any) error) error {
		var id string
		var m move
		err := scan(&id, &m.isCredited)
		known[id] = m
		return err
	})
	return known, err
}

func (a *application) debited(e *models.Event) error {
	credited := any(nil)
	if e.Peer == 0 {
		credited = e.At.UTC().Format(sqlstore.TimeLayout)
	}
	return a.insertMove(e.Move, e.CampaignID, e.Shard, e.Peer, e, credited)
}

func (a *application) credited(e *models.Event) error {
	_, err := a.tx.ExecContext(a.ctx, "UPDATE stock_moves SET credited_at = ? WHERE id = ?", e.At.UTC().Format(sqlstore.TimeLayout), e.Move)
	return err
}

// proven takes a credit whose debit no one has: both servers lost it. The giver has the units no more, in MySQL at once, and in Redis as
// soon as it is loaded again.
func (a *application) proven(e *models.Event) error {
	err := a.insertMove(e.Move, e.CampaignID, e.Peer, e.Shard, e, e.At.UTC().Format(sqlstore.TimeLayout))
	if err == nil && e.Peer > 0 {
		_, err = a.tx.ExecContext(a.ctx, "UPDATE lots SET total = CASE WHEN total < ? THEN 0 ELSE total - ? END,"+
			" residency_reason = CASE WHEN residency = ? THEN ? ELSE residency_reason END, residency = CASE WHEN residency = ? THEN ? ELSE residency END"+
			" WHERE campaign_id = ? AND shard = ?",
			e.Quantity, e.Quantity, models.ResidencyResident, "a shard was credited units that redis and mysql forgot to have left this one",
			models.ResidencyResident, models.ResidencyLost, e.CampaignID, e.Peer)
	}
	return err
}

func (a *application) insertMove(id, campaignID string, from, to int, e *models.Event, credited any) error {
	_, err := a.tx.ExecContext(a.ctx, "INSERT INTO stock_moves (id, campaign_id, from_shard, to_shard, units, debited_at, credited_at)"+
		" VALUES (?, ?, ?, ?, ?, ?, ?)", id, campaignID, from, to, e.Quantity, e.At.UTC().Format(sqlstore.TimeLayout), credited)
	return err
}

// movingLots are the lots of a batch that units come to or go from.
func movingLots(sums map[adder.Lot]*adder.Tally) (ids []any) {
	for lot, sum := range sums {
		if sum.Moves > 0 {
			ids = append(ids, lot.ID())
		}
	}
	return ids
}
