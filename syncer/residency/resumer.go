package residency

import (
	"context"
	"errors"
	"fmt"

	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/prometheus/client_golang/prometheus"
)

// Resumer completes what a process that died, or a Redis that was away, left half done: changes that Redis does not have yet and
// loads that were begun. It also looks after campaigns whose claim stream lost entries, and tries again to prove lost ones. Any
// number may run at once.
type Resumer struct {
	hydrator *Hydrator
	lost     prometheus.Gauge
}

// NewResumer makes a resumer that completes campaigns through hydrator; with a nil Registerer it has no metrics.
func NewResumer(hydrator *Hydrator, reg prometheus.Registerer) *Resumer {
	return &Resumer{hydrator: hydrator, lost: newCampaignsLost(reg)}
}

// Resume goes once over all campaigns that are half done and returns how many it completed. A campaign that stays lost from Redis
// is no error here. Any other failure is returned after the others had their turn.
func (r *Resumer) Resume(ctx context.Context) (completed int, err error) {
	completed, err = r.resume(ctx)
	return completed, errors.Join(err, r.countLost(ctx))
}

func (r *Resumer) resume(ctx context.Context) (completed int, err error) {
	var failed []error
	for after := ""; ; {
		page, err := r.page(ctx, after)
		if err != nil {
			return completed, errors.Join(append(failed, err)...)
		}
		for _, id := range page {
			_, err := r.hydrator.Hydrate(ctx, id)
			switch {
			case err == nil:
				completed++
			case ctx.Err() != nil:
				return completed, fmt.Errorf("residency: resume: %w", context.Cause(ctx))
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

func (r *Resumer) page(ctx context.Context, after string) ([]string, error) {
	var ids []string
	err := r.hydrator.db.WithContext(ctx).Raw("SELECT id FROM campaigns WHERE id > ? AND"+
		" (residency NOT IN ? AND epoch > 0 AND applied_version <> version"+
		" OR residency IN ? AND load_attempts > epoch OR residency = ? OR residency = ? AND stream_birth <>"+
		" COALESCE((SELECT birth FROM streams WHERE streams.`partition` = campaigns.`partition`), stream_birth))"+
		" ORDER BY id LIMIT ?", after, []models.Residency{models.ResidencyEvicted, models.ResidencyLost},
		[]models.Residency{models.ResidencyNone, models.ResidencyEvicted}, models.ResidencyLost, models.ResidencyResident, campaigns.PageSize).
		Scan(&ids).Error
	if err != nil {
		return nil, fmt.Errorf("residency: resume: %w", err)
	}
	return ids, nil
}

func (r *Resumer) countLost(ctx context.Context) error {
	var n int64
	err := r.hydrator.db.WithContext(ctx).Raw("SELECT COUNT(*) FROM campaigns WHERE residency = ?", models.ResidencyLost).Scan(&n).Error
	if err != nil {
		return fmt.Errorf("residency: resume: %w", err)
	}
	r.lost.Set(float64(n))
	return nil
}
