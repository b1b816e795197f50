package residency

import (
	"context"
	"errors"
	"fmt"

	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"
)

// Sweeper completes what a process that died, or a Redis that was away, left half done: changes that Redis does not have
// yet, loads that were begun, campaigns whose claim stream lost something, and lost ones that can be proven by now. Any
// number may run at once.
type Resumer struct {
	db       *gorm.DB
	hydrator *Hydrator
	lost     prometheus.Gauge
}

// NewSweeper makes a sweeper that completes campaigns through hydrator; with a nil Registerer it has no metrics.
func NewResumer(db *gorm.DB, hydrator *Hydrator, reg prometheus.Registerer) *Resumer {
	return &Resumer{db: db, hydrator: hydrator, lost: newCampaignsLost(reg)}
}

// Sweep goes once over all campaigns that are half done and returns how many it completed. Campaigns that are lost from
// Redis stay as they are; they are no error here. Any other failure is returned, after the others had their turn.
func (s *Resumer) Resume(ctx context.Context) (completed int, err error) {
	completed, err = s.resume(ctx)
	return completed, errors.Join(err, s.countLost(ctx))
}

func (s *Resumer) resume(ctx context.Context) (completed int, err error) {
	var failed []error
	for after := ""; ; {
		page, err := s.page(ctx, after)
		if err != nil {
			return completed, errors.Join(append(failed, err)...)
		}
		for _, id := range page {
			_, err := s.hydrator.Hydrate(ctx, id)
			switch {
			case err == nil:
				completed++
			case ctx.Err() != nil:
				return completed, fmt.Errorf("syncer: sweep: %w", context.Cause(ctx))
			case !errors.Is(err, campaigns.ErrLost) && len(failed) < campaigns.PageSize:
				failed = append(failed, err)
			}
		}
		if len(page) < campaigns.PageSize {
			return completed, errors.Join(failed...)
		}
		after = page[len(page)-1]
	}
}

func (s *Resumer) page(ctx context.Context, after string) ([]string, error) {
	var ids []string
	err := s.db.WithContext(ctx).Raw("SELECT id FROM campaigns WHERE id > ? AND"+
		" (residency NOT IN ? AND epoch > 0 AND applied_version <> version"+
		" OR residency IN ? AND load_attempts > epoch OR residency = ? OR residency = ? AND stream_birth <>"+
		" COALESCE((SELECT birth FROM streams WHERE streams.`partition` = campaigns.`partition`), stream_birth))"+
		" ORDER BY id LIMIT ?", after, []models.Residency{models.ResidencyEvicted, models.ResidencyLost},
		[]models.Residency{models.ResidencyNone, models.ResidencyEvicted}, models.ResidencyLost, models.ResidencyResident, campaigns.PageSize).
		Scan(&ids).Error
	if err != nil {
		return nil, fmt.Errorf("syncer: sweep: %w", err)
	}
	return ids, nil
}

func (s *Resumer) countLost(ctx context.Context) error {
	var n int64
	err := s.db.WithContext(ctx).Raw("SELECT COUNT(*) FROM campaigns WHERE residency = ?", models.ResidencyLost).Scan(&n).Error
	if err != nil {
		return fmt.Errorf("syncer: sweep: %w", err)
	}
	s.lost.Set(float64(n))
	return nil
}
