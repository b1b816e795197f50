package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dibs/internal/audit"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/apply"
	"dibs/syncer/parking"
	"dibs/syncer/tables"

	"gorm.io/gorm"
)

// ErrNoParked reports an id without a parked event.
var ErrNoParked = errors.New("compare: no such parked event")

// Parked is an event that MySQL could not take.
type Parked struct {
	ID       string    `json:"id"`
	LotID    string    `gorm:"column:campaign_id" json:"campaign_id"`
	UserID   string    `json:"user_id"`
	Reason   string    `json:"reason"`
	ParkedAt time.Time `json:"parked_at"`
}

const parkedPage = 500 // parked events of a read

// EachParked passes parked events to do, by id. Without a campaignID it
// passes those of all campaigns.
func (c *Comparer) EachParked(ctx context.Context, campaignID string, do func(*Parked) error) error {
	fetch := func(after string) (page []Parked, err error) {
		query := c.db.WithContext(ctx).Table("parked_events").Where("discarded_at IS NULL AND id > ?", after)
		if campaignID != "" {
			query = tables.OfLots(query, campaignID)
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

// RetryParked writes the parked claims of a campaign that MySQL now accepts.
// Errors: models.ErrNotFound, those of lots.Loader and of the database.
func (c *Comparer) RetryParked(ctx context.Context, id string) ([]stored.Repair, error) {
	return c.changeParked(ctx, id, func(r *repair) error { return r.retryParked(ctx, false) })
}

// DiscardParked gives up a parked event by its id. If it is a claim,
// its units are free again, and claims.given_up is published, although
// it was accepted. Errors: ErrNoParked, and as RetryParked.
func (c *Comparer) DiscardParked(ctx context.Context, id string) ([]stored.Repair, error) {
	var row stored.ParkedEvent
	found := c.db.WithContext(ctx).Where("id = ? AND discarded_at IS NULL", id).Limit(1).Find(&row)
	if found.Error != nil {
		return nil, fmt.Errorf("compare: parked event %s: %w", id, found.Error)
	}
	if found.RowsAffected == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoParked, id)
	}
	if e, err := event.Decode(row.Payload); err == nil && e.Type == event.ClaimAccepted {
		steps, err := c.changeParked(ctx, e.CampaignID, func(r *repair) error { return r.discardOne(ctx, id) })
		if err == nil && len(steps) == 0 { // another process was faster
			err = fmt.Errorf("%w any more: %s", ErrNoParked, id)
		}
		if !errors.Is(err, models.ErrNotFound) { // without a campaign there are no units
			return steps, err
		}
	}
	return nil, c.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Exec("UPDATE parked_events SET discarded_at = ? WHERE id = ?", sqlstore.Now(), id).Error; err != nil {
			return err
		}
		was := map[string]string{"id": id, "reason": row.Reason}
		return audit.Put(ctx, tx, models.AuditParkedDiscarded, row.LotID, was, nil)
	})
}

// changeParked runs do on each lot of a campaign,
// and reloads the lots that it changed.
func (c *Comparer) changeParked(ctx context.Context, id string, do func(r *repair) error) ([]stored.Repair, error) {
	done := Repaired{Steps: []stored.Repair{}}
	err := c.eachLot(ctx, id, &done, func(r *repair) error {
		before := len(done.Steps)
		if err := do(r); err != nil || len(done.Steps) == before {
			return err
		}
		return r.reload(ctx, &Comparison{})
	})
	return done.Steps, err
}

// retryParked writes a lot's parked claims if MySQL accepts them; with
// givesUp it gives up the others.
func (r *repair) retryParked(ctx context.Context, givesUp bool) error {
	return parking.Each(ctx, r.c.db, r.id, func(parked []parking.Claim) error {
		var written, refused []parking.Claim
		for i := range parked {
			one := &parked[i]
			var err error
			if !one.Written {
				err = apply.Write(ctx, r.c.db, one.Event)
			}
			switch {
			case err == nil:
				written = append(written, *one)
			case apply.FailureOf(err) == sqlstore.FailureData || apply.FailureOf(err) == sqlstore.FailureDuplicate:
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

func idsOf(parked []parking.Claim) []string {
	return sqlstore.Keys(parked, func(p *parking.Claim) string { return p.ID })
}

func (r *repair) unpark(ctx context.Context, parked []parking.Claim) error {
	if len(parked) == 0 {
		return nil
	}
	return r.change(ctx, RepairParked, named(parked), func(tx *gorm.DB) (string, error) {
		return "rows of claims", tx.Where("id IN ?", idsOf(parked)).Delete(&stored.ParkedEvent{}).Error
	})
}

// discardOne gives up a parked claim by id, unless it has a row now.
func (r *repair) discardOne(ctx context.Context, id string) error {
	return parking.Each(ctx, r.c.db, r.id, func(parked []parking.Claim) error {
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

// discard gives parked claims up, and keeps their payload. Another process
// may have done so, or written their rows, since they were read.
func (r *repair) discard(ctx context.Context, parked []parking.Claim) error {
	if len(parked) == 0 {
		return nil
	}
	var given []string
	err := r.change(ctx, RepairParked, named(parked), func(tx *gorm.DB) (string, error) {
		given = nil // of an attempt before
		left, err := parking.Left(tx, parked)
		if err != nil || len(left) == 0 {
			return "", err
		}
		e := givenUp(left)
		given = e.IDs
		err = tx.Exec("UPDATE parked_events SET discarded_at = ? WHERE id IN ?", sqlstore.Now(), idsOf(left)).Error
		if err != nil {
			return "", err
		}
		const give = "UPDATE lots SET given_up_claims = given_up_claims + ?, given_up_units = given_up_units + ? WHERE id = ?"
		if err := tx.Exec(give, len(left), e.Quantity, r.id).Error; err != nil {
			return "", err
		}
		return fmt.Sprintf("given up: %d units are for sale again", e.Quantity), r.publish(ctx, tx, &e)
	})
	r.done.GivenUp = append(r.done.GivenUp, given...)
	return err
}

// givenUp sums up claims that are given up.
func givenUp(parked []parking.Claim) event.Event {
	e := event.Event{Currency: parked[0].Event.Currency}
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
	return e
}

// named describes parked claims to operators:
// the first one, and the number of others.
func named(parked []parking.Claim) string {
	if len(parked) == 1 {
		return parked[0].String()
	}
	return fmt.Sprintf("%s and %d more", parked[0].String(), len(parked)-1)
}
