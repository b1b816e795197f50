package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"dibs/internal/ledger"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/writer"
)

// retryParked writes what is parked of the campaign and can be written by now, each event by itself and as the writer does it.
func (p *repair) retryParked(ctx context.Context) error {
	all, err := writer.ReadParked(ctx, p.r.db.ConnPool, p.id)
	if err != nil {
		return err
	}
	for i := range all.All {
		one := &all.All[i]
		if !one.Written {
			err := writer.WriteOne(ctx, p.r.db, one.Event)
			if isRefusal(err) {
				continue // see one.reason
			}
			if err != nil {
				return err
			}
		}
		err := p.change(ctx, func(tx *sqlstore.Tx, _ *models.Campaign) (*models.Repair, error) {
			if err := unpark(ctx, tx, one.ID); err != nil {
				return nil, err
			}
			return repairOf(p.id, RepairParked, one.String(),
				fmt.Sprintf("it has its row: seq %d, %d units", one.Event.Seq, one.Event.Quantity))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func unpark(ctx context.Context, tx *sqlstore.Tx, id string) error {
	_, err := tx.ExecContext(ctx, "DELETE FROM parked_events WHERE id = ?", id)
	return err
}

// giveUpParked gives up the claims that are parked still, if the repair may. Their payload is kept.
func (p *repair) giveUpParked(ctx context.Context) error {
	if !p.how.GiveUpClaims {
		return nil
	}
	all, err := writer.ReadParked(ctx, p.r.db.ConnPool, p.id)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(all.All, eventsAtOnce) {
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
	}
	return nil
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
