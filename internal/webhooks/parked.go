package webhooks

import (
	"context"
	"fmt"
	"iter"
	"log/slog"

	"dibs/models/stored"

	"gorm.io/gorm"
)

const parkedPage = 250 // events read at once

// Which selects parked events; an empty field matches all.
type Which struct{ Endpoint, EventID string }

func (w Which) of(ctx context.Context, db *gorm.DB) *gorm.DB {
	q := db.WithContext(ctx).Model(&stored.WebhookEvent{}).Where("parked_at IS NOT NULL")
	if w.Endpoint != "" {
		q = q.Where("endpoint = ?", w.Endpoint)
	}
	if w.EventID != "" {
		q = q.Where("event_id = ?", w.EventID)
	}
	return q
}

// Parked yields parked events in order, by endpoint and campaign. It ends
// after an error.
func Parked(ctx context.Context, db *gorm.DB, which Which) iter.Seq2[stored.WebhookEvent, error] {
	return func(yield func(stored.WebhookEvent, error) bool) {
		var last stored.WebhookEvent
		for {
			var page []stored.WebhookEvent
			err := which.of(ctx, db).
				Where("(endpoint > ? OR endpoint = ? AND (campaign_id > ? OR campaign_id = ? AND no > ?))",
					last.Endpoint, last.Endpoint, last.CampaignID, last.CampaignID, last.No).
				Order("endpoint, campaign_id, no").Limit(parkedPage).Find(&page).Error
			if err != nil {
				yield(last, fmt.Errorf("webhooks: read parked events: %w", err))
			}
			if err != nil || len(page) == 0 {
				return
			}
			for i := range page {
				if !yield(page[i], nil) {
					return
				}
			}
			last = page[len(page)-1]
		}
	}
}

// IsAnyParked reports whether there is such an event.
func IsAnyParked(ctx context.Context, db *gorm.DB, which Which) (bool, error) {
	var n int64
	if err := which.of(ctx, db).Count(&n).Error; err != nil {
		return false, fmt.Errorf("webhooks: count parked events: %w", err)
	}
	return n > 0, nil
}

// Discard deletes parked events permanently, and yields each one deleted. It
// ends after an error.
func Discard(ctx context.Context, db *gorm.DB, which Which) iter.Seq2[stored.WebhookEvent, error] {
	return func(yield func(stored.WebhookEvent, error) bool) {
		for e, err := range Parked(ctx, db, which) {
			if err == nil {
				err = db.WithContext(ctx).Delete(&e).Error
			}
			if err != nil {
				err = fmt.Errorf("webhooks: discard: %w", err)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Replay posts parked events again, in order. Accepted events are deleted.
// After a refused one, the rest of its campaign stays parked. It returns how
// many were taken and how many are left.
func (d *Dispatcher) Replay(ctx context.Context, which Which) (taken, left int64, err error) {
	refused := make(map[laneKey]bool)
	for e, err := range Parked(ctx, d.cfg.DB, which) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return taken, left, fmt.Errorf("webhooks: replay: %w", err)
		}
		key := laneKey{e.Endpoint, e.CampaignID}
		endpoint := d.cfg.Endpoints()[key.endpoint]
		if refused[key] || endpoint == nil {
			continue
		}
		id, body, err := endpoint.messageOf([]stored.WebhookEvent{e}, nil)
		if err == nil {
			err = d.sender.send(ctx, endpoint, id, body)
		}
		if err == nil {
			err = d.cfg.DB.WithContext(ctx).Delete(&e).Error
		}
		if err != nil {
			refused[key] = true
			d.cfg.Logger.WarnContext(ctx, "an event stays parked",
				slog.String("endpoint", key.endpoint), slog.String("event", e.EventID), slog.Any("error", err))
			continue
		}
		taken++
	}
	err = which.of(context.WithoutCancel(ctx), d.cfg.DB).Count(&left).Error
	if err != nil {
		return taken, left, fmt.Errorf("webhooks: replay: %w", err)
	}
	return taken, left, ctx.Err()
}
