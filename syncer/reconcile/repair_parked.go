package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"dibs/internal/ledger"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/writer"
)

// retryParked writes what is parked of the campaign and can be written by now, as the writer does: many claims in a transaction, and where
// the database refuses that, each in its own.
func (p *repair) retryParked(ctx context.Context) error {
	return writer.EachParked(ctx, p.r.db.ConnPool, p.id, func(parked []writer.ParkedClaim) error {
		missing := slices.DeleteFunc(slices.Clone(parked), func(one writer.ParkedClaim) bool { return one.Written })
		refused, err := p.write(ctx, missing)
		if err != nil {
			return err
		}
		written := slices.DeleteFunc(parked, func(one writer.ParkedClaim) bool { return refused[one.ID] })
		if len(written) == 0 {
			return nil
		}
		return p.change(ctx, func(tx *sqlstore.Tx, _ *models.Campaign) (*models.Repair, error) {
			if err := unpark(ctx, tx, written); err != nil {
				return nil, err
			}
			return repairOf(p.id, RepairParked, joined(sqlstore.Keys(written, (*writer.ParkedClaim).String)), "rows of claims")
		})
	})
}

// write writes the rows of parked claims. refused are those that the database refuses, see ParkedClaim.reason.
func (p *repair) write(ctx context.Context, parked []writer.ParkedClaim) (refused map[string]bool, err error) {
	if len(parked) == 0 {
		return nil, nil
	}
	events := make([]models.Event, len(parked))
	for i := range parked {
		events[i] = parked[i].Event
	}
	if err := writer.Write(ctx, p.r.db, events...); !isRefusal(err) {
		return nil, err
	}
	refused = make(map[string]bool)
	for i := range parked {
		switch err := writer.Write(ctx, p.r.db, events[i]); {
		case isRefusal(err):
			refused[parked[i].ID] = true
		case err != nil:
			return nil, err
		}
	}
	return refused, nil
}

func unpark(ctx context.Context, tx *sqlstore.Tx, parked []writer.ParkedClaim) error {
	ids := make([]any, len(parked))
	for i := range parked {
		ids[i] = parked[i].ID
	}
	_, err := tx.ExecContext(ctx, "DELETE FROM parked_events WHERE id IN "+sqlstore.Marks(len(ids)), ids...)
	return err
}

// compareFirst is the comparison that a repair begins with. If more claims of its lots are parked than it reads, they are written first, and
// given up if they can't be written and the repair may.
func (r *Reconciler) compareFirst(ctx context.Context, id string, lots []string, how RepairHow) (done Repaired, err error) {
	done.Steps = []models.Repair{}
	done.Found, err = r.Compare(ctx, id, DepthUsers)
	if errors.Is(err, writer.ErrParked) {
		for _, lot := range lots {
			p := &repair{r: r, id: lot, how: how}
			err = p.retryParked(ctx)
			if err == nil {
				err = p.giveUpParked(ctx)
			}
			done.add(&p.done)
			if err != nil {
				return done, err
			}
		}
		done.Found, err = r.Compare(ctx, id, DepthUsers)
	}
	done.Left = done.Found
	return done, err
}

// giveUpParked gives up the claims that are parked still, if the repair may. Their payload is kept.
func (p *repair) giveUpParked(ctx context.Context) error {
	if !p.how.GiveUpClaims {
		return nil
	}
	return writer.EachParked(ctx, p.r.db.ConnPool, p.id, func(part []writer.ParkedClaim) error {
		ids := make([]string, len(part))
		args := []any{sqlstore.Now().Format(sqlstore.TimeLayout)}
		names := make([]string, len(part))
		var units, amount int64
		for i := range part {
			e := &part[i].Event
			ids[i] = e.ID
			names[i] = part[i].String()
			args = append(args, part[i].ID)
			units += e.Quantity
			if e.Amount != nil {
				amount += *e.Amount
			}
		}
		gone := models.Event{IDs: ids, Quantity: units, Currency: part[0].Event.Currency}
		if gone.Currency != "" || amount > 0 {
			gone.Amount = &amount
		}
		err := p.change(ctx, func(tx *sqlstore.Tx, c *models.Campaign) (*models.Repair, error) {
			query := "UPDATE parked_events SET discarded_at = ? WHERE id IN " + sqlstore.Marks(len(part))
			if _, err := tx.ExecContext(ctx, query, args...); err != nil {
				return nil, err
			}
			if err := p.publishGivenUp(ctx, tx, c, &gone, nil); err != nil {
				return nil, err
			}
			return repairOf(p.id, RepairParked, joined(names), fmt.Sprintf("given up: its %d units are free", units))
		})
		if err != nil {
			return err
		}
		p.done.GivenUp = append(p.done.GivenUp, ids...)
		return nil
	})
}

// publishGivenUp leaves the event of claims that were given up in the outbox. e has what is known of them.
func (p *repair) publishGivenUp(ctx context.Context, tx *sqlstore.Tx, c *models.Campaign, e *models.Event, missing []seqRange) error {
	at, err := ledger.Time(ctx, tx)
	if err != nil {
		return err
	}
	e.Type = models.EventClaimsGivenUp
	e.ID = ""
	e.At = models.NewTime(at)
	e.Epoch = c.Epoch
	e.Seqs = nil
	e.CampaignID, e.Shard = models.SplitShardID(c.ID)
	for _, m := range missing {
		e.Seqs = append(e.Seqs, [2]int64(m))
	}
	row, err := campaigns.NewOutboxRow(models.OutboxEvent, e)
	if err != nil {
		return err
	}
	return campaigns.PutOutbox(ctx, tx, []models.OutboxRow{row})
}

// refuseParked says that a load would free the units of parked claims that can't be written.
func (p *repair) refuseParked(ctx context.Context) error {
	all, err := p.r.hydrator.Parked(ctx, p.id)
	if err != nil {
		return err
	}
	var names []string
	for i := range all.All {
		one := &all.All[i]
		if _, hasNone := p.noSeq[one.ID]; !hasNone && !one.Counts && !one.Written && len(names) < maxUsersNamed {
			names = append(names, one.String())
		}
	}
	return fmt.Errorf("%w: a load into redis would free the units of claims that can't be written: %s; put right what they say,"+
		" or give them up with --give-up-claims", writer.ErrParked, strings.Join(names, "; "))
}
