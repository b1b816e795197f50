package webhooks

import (
	"context"
	"fmt"
	"log/slog"

	"dibs/models"

	"gorm.io/gorm"
)

// ParkedMax is the most events that are listed, replayed or discarded at once.
const ParkedMax = 10_000

// Which chooses parked events; an empty field chooses all.
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

// Parked returns parked events, up to a number of them: by endpoint and
// campaign, in order.
func Parked(ctx context.Context, db *gorm.DB, which Which, most int) (rows []models.WebhookEvent, err error) {
	err = which.of(ctx, db).Order("endpoint, campaign_id, no").Limit(most).Find(&rows).Error
	if err != nil {
		err = fmt.Errorf("webhooks: read parked events: %w", err)
	}
	return rows, err
}

// Discard deletes parked events for good, and returns those that it deleted.
func Discard(ctx context.Context, db *gorm.DB, which Which) (gone []models.WebhookEvent, err error) {
	rows, err := Parked(ctx, db, which, ParkedMax)
	for i := range rows {
		err = db.WithContext(ctx).Delete(&rows[i]).Error
		if err != nil {
			return gone, fmt.Errorf("webhooks: discard: %w", err)
		}
		gone = append(gone, rows[i])
	}
	return gone, err
}

// Replay posts parked events once more, in order, up to ParkedMax. What an
// endpoint takes is parked no longer; after one that it does not take the rest
// of its campaign stays. It returns how many were taken and how many are left.
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
