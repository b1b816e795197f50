package webhooks

import (
	"context"
	"time"

	"dibs/internal/sqlstore"
	"dibs/models/stored"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

const (
	insertRows = 500 // per statement
	reasonMax  = 500 // bytes
)

type store struct{ db *gorm.DB }

type laneKey struct{ endpoint, campaignID string }

func (s store) of(ctx context.Context, key laneKey) *gorm.DB {
	return s.db.WithContext(ctx).Model(&stored.WebhookEvent{}).Where("endpoint = ? AND campaign_id = ?", key.endpoint, key.campaignID)
}

// insert adds events. One already waiting for the endpoint,
// because the stream repeated it, stays unchanged.
func (s store) insert(ctx context.Context, rows []stored.WebhookEvent) error {
	return s.db.WithContext(ctx).Clauses(clause.OnConflict{DoNothing: true}).CreateInBatches(rows, insertRows).Error
}

// page reads the next events of a lane that are not parked, in order.
func (s store) page(ctx context.Context, key laneKey, after int64, limit int) (rows []stored.WebhookEvent, err error) {
	err = s.of(ctx, key).Where("no > ? AND parked_at IS NULL", after).Order("no").Limit(limit).Find(&rows).Error
	return rows, err
}

// remove deletes delivered events after a number, up to another. Earlier ones
// are gone, unless a restored MySQL has them again.
func (s store) remove(ctx context.Context, key laneKey, after, upTo int64) error {
	return s.of(ctx, key).Where("no > ? AND no <= ? AND parked_at IS NULL", after, upTo).Delete(&stored.WebhookEvent{}).Error
}

// park gives up a lane's events up to the last that has waited since a time
// or longer. It returns their count and the last number.
func (s store) park(ctx context.Context, key laneKey, since time.Time, reason string) (n, last int64, err error) {
	err = s.of(ctx, key).Where("parked_at IS NULL AND created_at <= ?", since.UTC()).Select("COALESCE(MAX(no), 0)").Scan(&last).Error
	if err != nil {
		return 0, 0, err
	}
	done := s.of(ctx, key).Where("parked_at IS NULL AND no <= ?", last).
		Updates(map[string]any{"parked_at": sqlstore.Now(), "reason": sqlstore.Cut(reason, reasonMax)})
	return done.RowsAffected, last, done.Error
}

// gap returns the gap not yet reported to the endpoint, or nil.
func (s store) gap(ctx context.Context, key laneKey) (*Gap, error) {
	missing := s.of(ctx, key).Where("parked_at IS NOT NULL AND announced = 0").Session(&gorm.Session{})
	var g Gap
	if err := missing.Count(&g.Events).Error; err != nil || g.Events == 0 {
		return nil, err
	}
	for order, id := range map[string]*string{"no": &g.FirstID, "no DESC": &g.LastID} {
		if err := missing.Order(order).Limit(1).Pluck("event_id", id).Error; err != nil {
			return nil, err
		}
	}
	return &g, nil
}

// announced records that the endpoint was notified of its gap.
func (s store) announced(ctx context.Context, key laneKey) error {
	return s.of(ctx, key).Where("parked_at IS NOT NULL AND announced = 0").Update("announced", 1).Error
}

// left is a lane with events of an earlier process.
type left struct {
	key     laneKey
	lastNo  int64 // the highest number
	waiting int64 // not parked
	gap     *Gap
}

func (s store) lanes(ctx context.Context) (all []left, err error) {
	var rows []stored.WebhookEvent
	err = s.db.WithContext(ctx).Raw("SELECT endpoint, campaign_id, MAX(no) AS no FROM webhook_events" +
		" GROUP BY endpoint, campaign_id").Scan(&rows).Error
	if err != nil {
		return nil, err
	}
	for i := range rows {
		l := left{key: laneKey{rows[i].Endpoint, rows[i].CampaignID}, lastNo: rows[i].No}
		if err == nil {
			err = s.of(ctx, l.key).Where("parked_at IS NULL").Count(&l.waiting).Error
		}
		if err == nil {
			l.gap, err = s.gap(ctx, l.key)
		}
		all = append(all, l)
	}
	return all, err
}
