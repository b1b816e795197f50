package records

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/parking"

	"gorm.io/gorm"
)

// Books reads the counters of many campaigns.
type Books struct{ db *gorm.DB }

// NewBooks returns a reader.
func NewBooks(db *gorm.DB) *Books { return &Books{db: db} }

// Active lists up to most campaigns that are not closed or evicted, by
// last update. A sharded campaign is evicted when all its shards are.
func (b *Books) Active(ctx context.Context, most int) ([]string, error) {
	var ids []string
	err := b.db.WithContext(ctx).Raw("SELECT id FROM campaigns c WHERE status <> ? AND residency <> ? AND (shards <= 1 OR EXISTS (SELECT 1"+
		" FROM campaign_shards s WHERE s.campaign_id = c.id AND s.residency <> ?)) ORDER BY updated_at DESC, id LIMIT ?",
		models.StatusClosed, models.ResidencyEvicted, models.ResidencyEvicted, most).Scan(&ids).Error
	if err != nil {
		return nil, fmt.Errorf("records: list active campaigns: %w", err)
	}
	return ids, nil
}

// Public lists the campaigns that the public may read, by last change.
func (b *Books) Public(ctx context.Context, most int) ([]string, error) {
	var ids []string
	err := b.db.WithContext(ctx).Raw("SELECT campaign_id FROM definitions WHERE public <> '' ORDER BY version DESC, "+
		"campaign_id LIMIT ?", most).
		Scan(&ids).Error
	if err != nil {
		return nil, fmt.Errorf("records: list public campaigns: %w", err)
	}
	return ids, nil
}

// BooksOfAll reads definitions and counters of many
// campaigns, by id. It omits unknown ids, and campaigns
// with too many parked claims for parking.Read.
func (b *Books) BooksOfAll(ctx context.Context, ids []string) (map[string]models.CampaignBooks, error) {
	at := time.Now().UTC()
	rows, shards, err := b.rowsOfAll(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("records: books: %w", err)
	}
	lots := slices.Clone(ids)
	for i := range shards {
		lots = append(lots, shards[i].ID)
	}
	parked, err := b.parkedOfAll(ctx, lots) // few, if any; after the counters, as in Books
	if err != nil {
		return nil, err
	}
	flushMs, err := b.slowestFlushes(ctx, ids, at.Add(-models.FlushesOf))
	if err != nil {
		return nil, err
	}
	booksOf := func(c *models.Campaign) models.CampaignBooks {
		of := parked[c.ID]
		if of == nil {
			of = &parking.Claims{}
		}
		books := campaigns.BooksOf(c, of)
		books.At = at
		return models.CampaignBooks{Campaign: *c, Books: books, FlushMs: flushMs[c.ID]}
	}
	all := make(map[string]models.CampaignBooks, len(rows))
	for i := range rows {
		all[rows[i].ID] = booksOf(&rows[i])
	}
	for i := range shards {
		id := models.CampaignIDOf(shards[i].ID)
		of := all[id]
		shard := booksOf(&shards[i])
		of.Shards = append(of.Shards, shard)
		of.Books.ParkedClaims += shard.Books.ParkedClaims
		of.Books.ParkedUnits += shard.Books.ParkedUnits
		all[id] = of
	}
	for lot, of := range parked {
		if of == nil {
			delete(all, models.CampaignIDOf(lot))
		}
	}
	return all, nil
}

func (b *Books) rowsOfAll(ctx context.Context, ids []string) (rows, shards []models.Campaign, err error) {
	if err := b.db.WithContext(ctx).Where("id IN ?", ids).Find(&rows).Error; err != nil {
		return nil, nil, err
	}
	var sharded []string
	for i := range rows {
		if rows[i].IsSharded() {
			sharded = append(sharded, rows[i].ID)
		}
	}
	if len(sharded) > 0 {
		shards, err = campaigns.ReadLots(b.db.WithContext(ctx), sharded...)
	}
	return rows, shards, err
}

// parkedOfAll reads parked claims by lot: nil for a lot with too many.
func (b *Books) parkedOfAll(ctx context.Context, ids []string) (map[string]*parking.Claims, error) {
	var with []string
	err := b.db.WithContext(ctx).Raw("SELECT DISTINCT campaign_id FROM parked_events WHERE campaign_id IN ? AND discarded_at IS NULL", ids).
		Scan(&with).Error
	if err != nil {
		return nil, fmt.Errorf("records: parked claims: %w", err)
	}
	parked := make(map[string]*parking.Claims, len(with))
	for _, id := range with {
		parked[id], err = parking.Read(ctx, b.db, id)
		if err != nil && !errors.Is(err, parking.ErrTooMany) {
			return nil, err
		}
	}
	return parked, nil
}

// slowestFlushes returns the time of the
// slowest flush since a time, by campaign.
func (b *Books) slowestFlushes(ctx context.Context, ids []string, since time.Time) (map[string]int64, error) {
	var rows []struct {
		CampaignID string
		TookMs     int64
	}
	err := b.db.WithContext(ctx).Raw("SELECT campaign_id, MAX(took_ms) AS took_ms FROM stock_flushes"+
		" WHERE campaign_id IN ? AND flushed_at > ? GROUP BY campaign_id", ids, since).Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("records: flushes: %w", err)
	}
	took := make(map[string]int64, len(rows))
	for _, row := range rows {
		took[row.CampaignID] = max(1, row.TookMs) // 0 is none
	}
	return took, nil
}
