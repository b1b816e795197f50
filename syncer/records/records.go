// Package records reads, for people, what MySQL has of campaigns and claims:
// the counters of many campaigns at once, and flushes, comparisons, repairs,
// parked events, packets by time of release, and the life of a claim. It
// writes nothing.
package records

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/models/stored"
	"dibs/syncer/tables"

	"gorm.io/gorm"
)

// Reader reads records. The parameter most bounds every method.
type Reader struct{ db *gorm.DB }

// New makes a Reader.
func New(db *gorm.DB) *Reader { return &Reader{db: db} }

// Flushes are the last flushes of a campaign, newest first.
func (r *Reader) Flushes(ctx context.Context, campaignID string, most int) (rows []stored.StockFlush, err error) {
	err = r.db.WithContext(ctx).Where("campaign_id = ?", campaignID).Order("flushed_at DESC, id DESC").Limit(most).Find(&rows).Error
	return rows, wrap("flushes", err)
}

// Comparisons are the last comparisons of a campaign, newest first.
func (r *Reader) Comparisons(ctx context.Context, campaignID string, most int) (rows []stored.Reconciliation, err error) {
	err = r.db.WithContext(ctx).Where("campaign_id = ?", campaignID).Order("at DESC, id DESC").Limit(most).Find(&rows).Error
	return rows, wrap("comparisons", err)
}

// Repairs are the last repairs of a campaign, or of all for "", newest first.
func (r *Reader) Repairs(ctx context.Context, campaignID string, most int) (rows []stored.Repair, err error) {
	find := r.db.WithContext(ctx).Order("id DESC").Limit(most)
	if campaignID != "" {
		find = tables.OfLots(r.db.WithContext(ctx), campaignID).Order("at DESC, id DESC").Limit(most)
	}
	err = find.Find(&rows).Error
	return rows, wrap("repairs", err)
}

// Parked are events that are not given up,
// of a campaign or of all for "", by id.
func (r *Reader) Parked(ctx context.Context, campaignID string, most int) (rows []stored.ParkedEvent, err error) {
	find := r.db.WithContext(ctx).Where("discarded_at IS NULL")
	if campaignID != "" {
		find = tables.OfLots(find, campaignID)
	}
	err = find.Order("id").Limit(most).Find(&rows).Error
	return rows, wrap("parked events", err)
}

// comparedWithin is how long a recorded comparison counts for its
// campaign. Each campaign has a newer one within that time.
const comparedWithin = 20 * time.Minute

// Trouble counts what needs a person, over all campaigns.
func (r *Reader) Trouble(ctx context.Context) (t stored.Trouble, err error) {
	from := sqlstore.FirstIDAt(time.Now().Add(-comparedWithin))
	err = r.db.WithContext(ctx).Raw("SELECT (SELECT COUNT(*) FROM parked_events WHERE discarded_at IS NULL) AS parked,"+
		" (SELECT COUNT(DISTINCT r.campaign_id) FROM reconciliations r WHERE r.id > ? AND r.drift <> 0 AND NOT EXISTS"+
		" (SELECT 1 FROM reconciliations later WHERE later.campaign_id = r.campaign_id AND later.at > r.at AND later.drift = 0)) AS drifting,"+
		" (SELECT at FROM reconciliations ORDER BY id DESC LIMIT 1) AS compared_at", from).Scan(&t).Error
	return t, wrap("trouble", err)
}

// Webhooks lists the endpoints that have not taken every event, by
// name. Before a delivery fails, events wait only in the memory of
// `dibs webhooks`. Such endpoints are not listed.
func (r *Reader) Webhooks(ctx context.Context) (all []models.WebhookLag, err error) {
	db := r.db.WithContext(ctx)
	if err := db.Raw("SELECT DISTINCT endpoint FROM webhook_events ORDER BY endpoint").Scan(&all).Error; err != nil {
		return nil, wrap("webhooks", err)
	}
	for i := range all {
		const some = "(SELECT COUNT(*) FROM (SELECT 1 FROM webhook_events WHERE endpoint = ? AND parked_at "
		err := db.Raw("SELECT ? AS endpoint, "+some+"IS NULL LIMIT ?) w) AS waiting, "+some+"IS NOT NULL LIMIT ?) p) AS parked,"+
			" (SELECT at FROM webhook_events WHERE endpoint = ? AND parked_at IS NULL ORDER BY at LIMIT 1) AS oldest",
			all[i].Endpoint, all[i].Endpoint, models.WebhooksCounted, all[i].Endpoint, models.WebhooksCounted, all[i].Endpoint).
			Scan(&all[i]).Error
		if err != nil {
			return nil, wrap("webhooks", err)
		}
	}
	return all, nil
}

// Waves are the packets of a campaign by time of release, earliest first.
func (r *Reader) Waves(ctx context.Context, campaignID string, most int) (waves []stored.Wave, err error) {
	err = r.db.WithContext(ctx).Table("packets").Where("campaign_id = ?", campaignID).
		Select("release_at, COUNT(*) AS packets, COUNT(claim_id) AS taken, COUNT(returned_at) AS returned, SUM(amount) AS amount").
		Group("release_at").Order("release_at").Limit(most).Scan(&waves).Error
	return waves, wrap("waves", err)
}

// Story reads what MySQL has of a claim. Errors:
// models.ErrNotFound if that is nothing.
func (r *Reader) Story(ctx context.Context, claimID string) (s stored.ClaimStory, err error) {
	db := r.db.WithContext(ctx)
	s.Row, err = oneOrNone[stored.ClaimRow](db.Where("id = ?", claimID))
	if err == nil {
		s.Parked, err = oneOrNone[stored.ParkedEvent](db.Where("id = ?", claimID))
	}
	if err == nil && s.Row == nil && s.Parked == nil {
		err = models.ErrNotFound
	}
	if err == nil && s.Row != nil { // by lot, which has an index
		err = db.Where("campaign_id = ? AND claim_id = ?", s.Row.LotID(), claimID).Order("id").Limit(outboxMax).Find(&s.Outbox).Error
	}
	return s, wrap("claim "+claimID, err)
}

// outboxMax bounds the rows of outbox of one claim: there are two at most.
const outboxMax = 10

// ClaimsOfOrder are the claims that an order redeemed.
func (r *Reader) ClaimsOfOrder(ctx context.Context, orderID string, most int) (rows []stored.ClaimRow, err error) {
	err = r.db.WithContext(ctx).Where("id IN (SELECT claim_id FROM claim_orders WHERE order_id = ?)",
		orderID).Order("id").Limit(most).Find(&rows).Error
	return rows, wrap("claims of an order", err)
}

func oneOrNone[T any](find *gorm.DB) (*T, error) {
	var row T
	err := find.Take(&row).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, nil //nolint:nilnil // none is no error here
	}
	return &row, err
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("records: %s: %w", what, err)
	}
	return nil
}
