package webhooks

import (
	"context"
	"fmt"
	"log/slog"

	"dibs/models"

	"gorm.io/gorm"
)

// ParkedMax is the most events listed, replayed or discarded at once.
const ParkedMax = 10_000

// Which selects parked events; an empty field matches all.
type Which struct{ Endpoint, EventID string }

func (w Which) of(ctx context.Context, db *gorm.DB) *gorm.DB {
	q := db.WithContext(ctx).Model(&models.WebhookEvent{}).Where("parked_at IS NOT NULL")
	if w.Endpoint != "" {
		q = q.Where("endpoint = ?", w.Endpoint)
	}
	if w.EventID != "" {
		q = q.Where("event_id = ?", w.EventID)
	}
	return q
}

// Parked returns up to most parked events, in order, by endpoint
// and campaign.
func Parked(ctx context.Context, db *gorm.DB, which Which, most int) (rows []models.WebhookEvent, err error) {
	err = which.of(ctx, db).Order("endpoint, campaign_id, no").Limit(most).Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("webhooks: read parked events: %w", err)
	}
	return rows, nil
}

// Discard deletes parked events permanently, and returns those deleted.
func Discard(ctx context.Context, db *gorm.DB, which Which) (deleted []models.WebhookEvent, err error) {
	rows, err := Parked(ctx, db, which, ParkedMax)
	for i := range rows {
		err = db.WithContext(ctx).Delete(&rows[i]).Error
		if err != nil {
			return deleted, fmt.Errorf("webhooks: discard: %w", err)
		}
		deleted = append(deleted, rows[i])
	}
	return deleted, err
}

// Replay posts parked events again, in order, up to ParkedMax. Accepted
// events are deleted. After a refused one, the rest of its campaign stays
// parked. It returns how many were taken and how many are left.
func (d *Dispatcher) Replay(ctx context.Context, which Which) (taken, left int64, err error) {
	rows, err := Parked(ctx, d.cfg.DB, which, ParkedMax)
	refused := make(map[laneKey]bool)
	for i := range rows {
		key := laneKey{rows[i].Endpoint, rows[i].CampaignID}
		endpoint := d.cfg.Endpoints()[key.endpoint]
		if refused[key] || endpoint == nil || ctx.Err() != nil {
			continue
		}
		id, body, err := endpoint.messageOf(rows[i:i+1], nil)
		if err == nil {
			err = d.sender.send(ctx, endpoint, id, body)
		}
		if err == nil {
			err = d.cfg.DB.WithContext(ctx).Delete(&rows[i]).Error
		}
		if err != nil {
			refused[key] = true
			d.cfg.Logger.WarnContext(ctx, "an event stays parked",
				slog.String("endpoint", key.endpoint), slog.String("event", rows[i].EventID), slog.Any("error", err))
			continue
		}
		taken++
	}
	if err == nil {
		err = which.of(context.WithoutCancel(ctx), d.cfg.DB).Count(&left).Error
	}
	if err != nil {
		return taken, left, fmt.Errorf("webhooks: replay: %w", err)
	}
	return taken, left, ctx.Err()
}
