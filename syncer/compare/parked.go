package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dibs/internal/audit"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/writer"
)

// ErrNoParked says that no parked event has an id.
var ErrNoParked = errors.New("compare: no such parked event")

// Parked is an event that MySQL could not take.
type Parked struct {
	ID         string    `json:"id"`
	CampaignID string    `json:"campaign_id"` // "<id>#<shard>" of a shard
	UserID     string    `json:"user_id"`
	Reason     string    `json:"reason"`
	ParkedAt   time.Time `json:"parked_at"`
}

// parkedPage is how many parked events are read at once.
const parkedPage = 500

// EachParked hands out the parked events that were not discarded, by id, those of all campaigns if campaignID is "".
func (c *Comparer) EachParked(ctx context.Context, campaignID string, do func(*Parked) error) error {
	fetch := func(after string) (page []Parked, err error) {
		query := c.db.WithContext(ctx).Table("parked_events").Where("discarded_at IS NULL AND id > ?", after)
		if campaignID != "" {
			query = query.Where("campaign_id = ? OR campaign_id LIKE ?", campaignID, campaignID+"#%")
		}
		err = query.Order("id").Limit(parkedPage).Find(&page).Error
		return page, err
	}
	for page, err := range sqlstore.Pages(func(p *Parked) string { return p.ID }, fetch) {
		if err != nil {
			return fmt.Errorf("compare: parked events: %w", err)
		}
		for i := range page {
			if err := do(&page[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// RetryParked writes the parked claims of a campaign that MySQL takes by now. Errors: models.ErrNotFound, those of lots.Loader and of the
// database.
func (c *Comparer) RetryParked(ctx context.Context, id string) ([]models.Repair, error) {
	return c.changeParked(ctx, id, func(r *repair) error { return r.retryParked(ctx, false) })
}

// DiscardParked gives up a parked event, by its id. If it is a claim, which was answered, its units are for sale again, and
// claims.given_up tells of it. Errors: ErrNoParked, and as RetryParked.
func (c *Comparer) DiscardParked(ctx context.Context, id string) ([]models.Repair, error) {
	var row models.ParkedEvent
	found := c.db.WithContext(ctx).Where("id = ? AND discarded_at IS NULL", id).Limit(1).Find(&row)
	if found.Error != nil {
		return nil, fmt.Errorf("compare: parked event %s: %w", id, found.Error)
	}
	if found.RowsAffected == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoParked, id)
	}
	if e, err := models.DecodeEvent(row.Payload); err == nil && e.Type == models.EventClaimAccepted {
		steps, err := c.changeParked(ctx, e.CampaignID, func(r *repair) error { return r.discardOne(ctx, id) })
		if !errors.Is(err, models.ErrNotFound) { // else no lot has its units
			return steps, err
		}
	}
	return nil, sqlstore.InTx(ctx, c.db, func(tx *sqlstore.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE parked_events SET discarded_at = ? WHERE id = ?", sqlstore.Now().Format(sqlstore.TimeLayout), id)
		if err == nil {
			err = audit.Put(ctx, tx, models.AuditParkedDiscarded, row.CampaignID, map[string]string{"id": id, "reason": row.Reason}, nil)
		}
		return err
	})
}

// changeParked does something about the parked claims of each lot of a campaign, and loads those lots again of which it changed some.
func (c *Comparer) changeParked(ctx context.Context, id string, do func(r *repair) error) ([]models.Repair, error) {
	done := Repaired{Steps: []models.Repair{}}
	err := c.eachLot(ctx, id, &done, func(r *repair) error {
		before := len(done.Steps)
		err := do(r)
		if err == nil && len(done.Steps) > before {
			err = r.reload(ctx, &Comparison{})
		}
		return err
	})
	return done.Steps, err
}

// retryParked writes what is parked of the lot and can be written by now, as the writer does. What can't is given up if that is allowed.
func (r *repair) retryParked(ctx context.Context, givesUp bool) error {
	return writer.EachParked(ctx, r.c.db.ConnPool, r.id, func(parked []writer.ParkedClaim) error {
		var written, refused []writer.ParkedClaim
		for i := range parked {
			one := &parked[i]
			var err error
			if !one.Written {
				err = writer.Write(ctx, r.c.db, one.Event)
			}
			switch {
			case err == nil:
				written = append(written, *one)
			case writer.FailureOf(err) == sqlstore.FailureData || writer.FailureOf(err) == sqlstore.FailureDuplicate:
				refused = append(refused, *one)
			default:
				return err
			}
		}
		if err := r.unpark(ctx, written); err != nil || !givesUp {
			return err
		}
		return r.discard(ctx, refused)
	})
}

func idsOf(parked []writer.ParkedClaim) []string {
	return sqlstore.Keys(parked, func(p *writer.ParkedClaim) string { return p.ID })
}

func (r *repair) unpark(ctx context.Context, parked []writer.ParkedClaim) error {
	if len(parked) == 0 {
		return nil
	}
	return r.change(ctx, RepairParked, named(parked), func(tx *sqlstore.Tx) (string, error) {
		_, err := tx.ExecContext(ctx, "DELETE FROM parked_events WHERE id IN "+sqlstore.Marks(len(parked)), sqlstore.Args(idsOf(parked))...)
		return "rows of claims", err
	})
}

// discardOne gives up the parked claim with an id, unless it has its row by now.
func (r *repair) discardOne(ctx context.Context, id string) error {
	return writer.EachParked(ctx, r.c.db.ConnPool, r.id, func(parked []writer.ParkedClaim) error {
		for i := range parked {
			switch one := parked[i : i+1]; {
			case one[0].ID != id:
			case one[0].Written:
				return r.unpark(ctx, one)
			default:
				return r.discard(ctx, one)
			}
		}
		return nil
	})
}

// discard gives parked claims up. Their payload is kept.
func (r *repair) discard(ctx context.Context, parked []writer.ParkedClaim) error {
	if len(parked) == 0 {
		return nil
	}
	e := models.Event{Currency: parked[0].Event.Currency}
	amount := int64(0)
	for i := range parked {
		claim := &parked[i].Event
		e.IDs = append(e.IDs, claim.ID)
		e.Quantity += claim.Quantity
		if claim.Amount != nil {
			amount += *claim.Amount
			e.Amount = &amount
		}
	}
	err := r.change(ctx, RepairParked, named(parked), func(tx *sqlstore.Tx) (string, error) {
		args := append([]any{sqlstore.Now().Format(sqlstore.TimeLayout)}, sqlstore.Args(idsOf(parked))...)
		_, err := tx.ExecContext(ctx, "UPDATE parked_events SET discarded_at = ? WHERE id IN "+sqlstore.Marks(len(parked)), args...)
		if err == nil {
			_, err = tx.ExecContext(ctx, "UPDATE lots SET given_up_claims = given_up_claims + ?, given_up_units = given_up_units + ? WHERE id = ?",
				len(parked), e.Quantity, r.id)
		}
		if err == nil {
			err = r.publish(ctx, tx, &e)
		}
		return fmt.Sprintf("given up: %d units are for sale again", e.Quantity), err
	})
	r.done.GivenUp = append(r.done.GivenUp, e.IDs...)
	return err
}

// named are parked claims for people: the first one, and how many more there are.
func named(parked []writer.ParkedClaim) string {
	if len(parked) == 1 {
		return parked[0].String()
	}
	return fmt.Sprintf("%s and %d more", parked[0].String(), len(parked)-1)
}
