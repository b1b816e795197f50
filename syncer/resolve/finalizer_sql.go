package resolve

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/campaigns"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// closedEventID derives the id of the event that ends a campaign. Readers
// pass over an id that they know, so after the end of a deleted campaign
// that of a later one of its id has the time of its creation, too.
func closedEventID(campaignID string, later *time.Time) string {
	name := "dibs:campaign.closed:" + campaignID
	if later != nil {
		name += ":" + strconv.FormatInt(later.UnixMilli(), 10)
	}
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).String()
}

const day = 24 * time.Hour

// endOf returns the id of the event that ends a campaign and, if a
// restored MySQL has read that event from the stream again, its time.
// The last change was the close; process clocks differ by less than a day.
func (f *Finalizer) endOf(ctx context.Context, c *models.Campaign) (id string, booked *time.Time, err error) {
	var ends []struct {
		ID      string
		At      time.Time
		Payload []byte
	}
	err = f.relay.db.WithContext(ctx).Table("ledger_events").Select("id, at, payload").
		Where("campaign_id = ? AND type = ? AND (at < ? OR at >= ?)", c.ID, event.CampaignClosed,
			c.CreatedAt.Add(day), time.UnixMilli(c.Version).UTC().Add(-day)).Find(&ends).Error
	if err != nil {
		return "", nil, fmt.Errorf("resolve: finalize %s: %w", c.ID, err)
	}
	id = closedEventID(c.ID, nil)
	for _, end := range ends {
		e, err := event.Decode(end.Payload)
		if err != nil {
			return "", nil, fmt.Errorf("resolve: finalize %s: %w", c.ID, err)
		}
		isEarlier := e.MadeMs != c.CreatedAt.UnixMilli()
		if e.MadeMs == 0 { // of an older version
			isEarlier = end.At.Before(c.CreatedAt)
		}
		if isEarlier {
			id = closedEventID(c.ID, &c.CreatedAt)
		}
	}
	for _, end := range ends {
		if end.ID == id {
			booked = &end.At
		}
	}
	return id, booked, nil
}

// returnPackets is step 1. No packets are added to a closed campaign.
// Positions may have gaps, as restored packets keep their own.
func (f *Finalizer) returnPackets(ctx context.Context, c *models.Campaign) error {
	var last int64
	err := f.relay.db.WithContext(ctx).Raw("SELECT COALESCE(MAX(position), 0) FROM packets WHERE campaign_id = ?", c.ID).Row().Scan(&last)
	if err != nil {
		return fmt.Errorf("resolve: finalize %s: %w", c.ID, err)
	}
	query := "UPDATE packets" + campaigns.ByPosition(f.relay.db) + " SET returned_at = ? WHERE campaign_id = ?" +
		" AND position > ? AND position <= ? AND claim_id IS NULL AND returned_at IS NULL"
	for from := f.cursors[c.ID]; from < last; from = f.cursors[c.ID] {
		upto := min(from+int64(f.batch), last)
		var n int64
		err := sqlstore.Retry(ctx, func() (err error) {
			n, err = sqlstore.Exec(ctx, f.relay.db, query, sqlstore.Now().Format(sqlstore.TimeLayout), c.ID, from, upto)
			return err
		})
		if err != nil {
			return fmt.Errorf("resolve: finalize %s: %w", c.ID, err)
		}
		f.returned.Add(float64(n))
		f.cursors[c.ID] = upto
		f.steps.At("returned")
	}
	return nil
}

// writeEnd is step 2. ended is false if another process did it.
func (f *Finalizer) writeEnd(ctx context.Context, c *models.Campaign) (row stored.OutboxRow, ended bool, err error) {
	e, err := f.closedEvent(ctx, c)
	if err != nil {
		return row, false, err
	}
	id, booked, err := f.endOf(ctx, c)
	if err != nil {
		return row, false, err
	}
	e.ID = id
	err = sqlstore.Retry(ctx, func() (err error) {
		row, ended, err = f.commit(ctx, e, booked)
		return err
	})
	if err != nil {
		return row, false, fmt.Errorf("resolve: finalize %s: %w", c.ID, err)
	}
	return row, ended, nil
}

// commit adds the event to the outbox, even if the stream has it: the
// books of a finance service may have been restored, too.
func (f *Finalizer) commit(
	ctx context.Context, e *event.Event, booked *time.Time,
) (row stored.OutboxRow, ended bool, err error) {
	err = f.relay.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		at := sqlstore.Now()
		if booked != nil {
			at = *booked
		}
		e.At = models.NewTime(at)
		row, err = campaigns.NewOutboxRow(stored.OutboxEvent, e)
		if err != nil {
			return err
		}
		n, err := sqlstore.Exec(ctx, tx, "UPDATE definitions SET closed_told_at = ?"+
			" WHERE campaign_id = ? AND status = ? AND closed_told_at IS NULL",
			at.UTC().Format(sqlstore.TimeLayout), row.LotID, models.StatusClosed)
		if err != nil || n == 0 {
			return err
		}
		f.steps.At("end noted")
		if err := campaigns.PutOutbox(ctx, tx, []stored.OutboxRow{row}); err != nil {
			return err
		}
		f.steps.At("outbox written")
		ended = true
		return nil
	})
	return row, ended && err == nil, err
}

// closedEvent makes campaign.closed from final counters. If they
// contradict each other, it returns an ErrUndrained.
func (f *Finalizer) closedEvent(ctx context.Context, c *models.Campaign) (*event.Event, error) {
	left := max(0, c.Total-c.Claimed)
	e := event.Event{
		Type: event.CampaignClosed, CampaignID: c.ID, Epoch: c.Epoch,
		UserID: c.SenderID, Remaining: &left, Currency: c.Currency, MadeMs: c.CreatedAt.UnixMilli(),
	}
	if c.Kind == models.KindPacket {
		var open, returned, amount int64
		err := f.relay.db.WithContext(ctx).Raw("SELECT"+
			" COALESCE(SUM(CASE WHEN claim_id IS NULL AND returned_at IS NULL THEN 1 ELSE 0 END), 0),"+
			" COALESCE(SUM(CASE WHEN returned_at IS NOT NULL THEN 1 ELSE 0 END), 0),"+
			" COALESCE(SUM(CASE WHEN returned_at IS NOT NULL THEN amount ELSE 0 END), 0) FROM packets WHERE campaign_id = ?", c.ID).Row().
			Scan(&open, &returned, &amount)
		switch {
		case err != nil:
			return nil, fmt.Errorf("resolve: finalize %s: %w", c.ID, err)
		case c.SenderID != "" && open > 0 || open+returned != left:
			delete(f.cursors, c.ID) // start again
			return nil, fmt.Errorf("%w: %s: %d packets are returned, %d without an owner, %d of %d units are claimed",
				ErrUndrained, c.ID, returned, open, c.Claimed, c.Total)
		case amount > 0:
			e.Amount = &amount
		}
	}
	return &e, nil
}
