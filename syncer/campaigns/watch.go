package campaigns

import (
	"context"
	"fmt"
	"time"

	"dibs/models"
	"dibs/syncer/writer"
)

// Active lists the campaigns that are neither closed nor evicted, those whose books moved last first, up to most.
func (r *Repository) Active(ctx context.Context, most int) ([]string, error) {
	var ids []string
	err := r.db.WithContext(ctx).Raw("SELECT id FROM campaigns WHERE status <> ? AND residency <> ? ORDER BY updated_at DESC, id LIMIT ?",
		models.StatusClosed, models.ResidencyEvicted, most).Scan(&ids).Error
	if err != nil {
		return nil, fmt.Errorf("campaigns: list active campaigns: %w", err)
	}
	return ids, nil
}

// BooksOfAll reads the definitions and the books of many campaigns, by their ids; those that there are not are missing.
func (r *Repository) BooksOfAll(ctx context.Context, ids []string) (map[string]models.CampaignBooks, error) {
	at := time.Now().UTC()
	var rows []models.Campaign
	if err := r.db.WithContext(ctx).Where("id IN ?", ids).Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("campaigns: books: %w", err)
	}
	var withParked []string // few, if any; after the counters, as Books reads them
	err := r.db.WithContext(ctx).Raw("SELECT DISTINCT campaign_id FROM parked_events WHERE campaign_id IN ? AND discarded_at IS NULL", ids).
		Scan(&withParked).Error
	if err != nil {
		return nil, fmt.Errorf("campaigns: books: %w", err)
	}
	parked := make(map[string]*writer.ParkedClaims, len(withParked))
	for _, id := range withParked {
		if parked[id], err = writer.ReadParked(ctx, r.db.ConnPool, id); err != nil {
			return nil, err
		}
	}
	flushMs, err := r.slowestFlushes(ctx, ids, at.Add(-models.FlushesOf))
	if err != nil {
		return nil, err
	}
	all := make(map[string]models.CampaignBooks, len(rows))
	for i := range rows {
		c := &rows[i]
		one := &writer.ParkedClaims{}
		if parked[c.ID] != nil {
			one = parked[c.ID]
		}
		books := BooksOf(c, one)
		books.At = at
		all[c.ID] = models.CampaignBooks{Campaign: *c, Books: books, FlushMs: flushMs[c.ID]}
	}
	return all, nil
}

// slowestFlushes is how long the slowest flush since a moment took, by campaign.
func (r *Repository) slowestFlushes(ctx context.Context, ids []string, since time.Time) (map[string]int64, error) {
	var rows []struct {
		CampaignID string
		TookMs     int64
	}
	err := r.db.WithContext(ctx).Raw("SELECT campaign_id, MAX(took_ms) AS took_ms FROM stock_flushes"+
		" WHERE campaign_id IN ? AND flushed_at > ?"+
		" GROUP BY campaign_id", ids, since).Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("campaigns: flushes: %w", err)
	}
	took := make(map[string]int64, len(rows))
	for _, row := range rows {
		took[row.CampaignID] = max(1, row.TookMs) // 0 is none
	}
	return took, nil
}
