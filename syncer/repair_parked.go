package syncer

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"dibs/models"
)

// retryParked writes what is parked of a campaign and can be written by now, each event by itself and as the writer does it.
// What can't be stays, or is given up if how says so.
func (r *Reconciler) retryParked(ctx context.Context, id string, how RepairHow) (steps []models.Repair, err error) {
	pool, err := r.cfg.DB.DB()
	if err != nil {
		return nil, fmt.Errorf("syncer: repair %s: %w", id, err)
	}
	all, err := readParked(ctx, pool, id)
	if err != nil {
		return nil, err
	}
	for i := range all.list {
		p := &all.list[i]
		outcome, err := r.retry(ctx, p, how)
		if err != nil {
			return steps, fmt.Errorf("syncer: repair %s: %w", id, err)
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

func (r *Reconciler) retry(ctx context.Context, p *parkedClaim, how RepairHow) (parkedOutcome, error) {
	if p.written {
		return parkedWritten, nil
	}
	err := WriteOne(ctx, r.cfg.DB, r.cfg.Logger, p.event, p.payload)
	switch WriteFailureOf(err) {
	case failureNone:
		return parkedWritten, nil
	case failureTransient, failureClash:
		return parkedStays, err
	default:
	}
	if how.DiscardParked {
		return parkedDiscarded, nil
	}
	return parkedStays, nil // the database refuses it still, see p.reason
}

// unpark takes a claim off the list of those that are parked. Its payload is kept when it was given up.
func (r *Reconciler) unpark(ctx context.Context, p *parkedClaim, outcome parkedOutcome) (models.Repair, error) {
	id := p.event.CampaignID
	after := fmt.Sprintf("it has its row: seq %d, %d units", p.event.Seq, p.event.Quantity)
	if outcome == parkedDiscarded {
		after = fmt.Sprintf("given up: its %d units are free", p.event.Quantity)
	}
	step, err := repairOf(id, RepairParked, p.String(), after)
	if err != nil {
		return step, err
	}
	err = r.locked(ctx, id, func(tx *sql.Tx, _ *models.Campaign) error {
		query, args := "DELETE FROM parked_events WHERE id = ?", []any{p.id}
		if outcome == parkedDiscarded {
			query, args = "UPDATE parked_events SET discarded_at = ? WHERE id = ?", []any{step.At.Format(timeLayout), p.id}
		}
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return fmt.Errorf("syncer: repair %s: %w", id, err)
		}
		return writeRepair(ctx, tx, &step)
	})
	return step, err
}

// noneInTheWay fails with ErrParked when a rebuild would forget parked claims.
func (r *Reconciler) noneInTheWay(ctx context.Context, id string) error {
	all, err := r.cfg.Hydrator.parked(ctx, id)
	if err != nil {
		return err
	}
	var names []string
	for i := range all.list {
		if p := &all.list[i]; !p.counts && !p.written && len(names) < usersNamedMost {
			names = append(names, p.String())
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: a rebuild of redis would free the units of claims that can't be written: %s; "+
		"discard them explicitly if they are to be given up",
		ErrParked, id, strings.Join(names, "; "))
}
