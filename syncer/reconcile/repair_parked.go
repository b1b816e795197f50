package reconcile

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/writer"
)

// retryParked writes what is parked of a campaign and can be written by now, each event by itself and as the writer does it.
// What can't be stays, or is given up if how says so.
func (r *Reconciler) retryParked(ctx context.Context, id string, how RepairHow) (steps []models.Repair, err error) {
	all, err := writer.ReadParked(ctx, r.db.ConnPool, id)
	if err != nil {
		return nil, err
	}
	for i := range all.All {
		p := &all.All[i]
		outcome, err := r.retry(ctx, p, how)
		if err != nil {
			return steps, fmt.Errorf("reconcile: repair %s: %w", id, err)
		}
		if outcome == parkedStays {
			continue
		}
		step, err := r.unpark(ctx, p, outcome)
		if err != nil {
			return steps, err
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// What becomes of a parked claim.
type parkedOutcome int

const (
	parkedStays parkedOutcome = iota
	parkedWritten
	parkedDiscarded
)

func (r *Reconciler) retry(ctx context.Context, p *writer.ParkedClaim, how RepairHow) (parkedOutcome, error) {
	if p.Written {
		return parkedWritten, nil
	}
	err := writer.WriteOne(ctx, r.db, p.Event)
	switch writer.FailureOf(err) {
	case sqlstore.FailureNone:
		return parkedWritten, nil
	case sqlstore.FailureTransient, sqlstore.FailureClash:
		return parkedStays, err
	default:
	}
	if how.DiscardParked {
		return parkedDiscarded, nil
	}
	return parkedStays, nil // the database refuses it still, see p.reason
}

// unpark takes a claim off the list of those that are parked. Its payload is kept when it was given up.
func (r *Reconciler) unpark(ctx context.Context, p *writer.ParkedClaim, outcome parkedOutcome) (models.Repair, error) {
	id := p.Event.CampaignID
	after := fmt.Sprintf("it has its row: seq %d, %d units", p.Event.Seq, p.Event.Quantity)
	if outcome == parkedDiscarded {
		after = fmt.Sprintf("given up: its %d units are free", p.Event.Quantity)
	}
	step, err := repairOf(id, RepairParked, p.String(), after)
	if err != nil {
		return step, err
	}
	err = r.locked(ctx, id, func(tx *sql.Tx, _ *models.Campaign) error {
		query, args := "DELETE FROM parked_events WHERE id = ?", []any{p.ID}
		if outcome == parkedDiscarded {
			query, args = "UPDATE parked_events SET discarded_at = ? WHERE id = ?", []any{step.At.Format(sqlstore.TimeLayout), p.ID}
		}
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return fmt.Errorf("reconcile: repair %s: %w", id, err)
		}
		return writeRepair(ctx, tx, &step)
	})
	return step, err
}

// noneInTheWay fails with ErrParked when a rebuild would forget parked claims.
func (r *Reconciler) noneInTheWay(ctx context.Context, id string) error {
	all, err := r.hydrator.Parked(ctx, id)
	if err != nil {
		return err
	}
	var names []string
	for i := range all.All {
		if p := &all.All[i]; !p.Counts && !p.Written && len(names) < usersNamedMost {
			names = append(names, p.String())
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: a rebuild of redis would free the units of claims that can't be written: %s; "+
		"discard them explicitly if they are to be given up",
		writer.ErrParked, id, strings.Join(names, "; "))
}
