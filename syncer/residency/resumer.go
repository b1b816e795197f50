package residency

import (
	"context"
	"errors"
	"fmt"

	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/campaigns"

	"github.com/prometheus/client_golang/prometheus"
)

// Resumer completes what a process that died, or a Redis that was away, left half done: changes that Redis does not have yet and
// loads that were started. It also looks after campaigns whose claim stream lost entries, and tries again to prove lost ones. Any
// number may run at once.
type Resumer struct {
	hydrator *Hydrator
	lost     prometheus.Gauge
	parked   prometheus.Gauge
}

// NewResumer makes a resumer that completes campaigns through hydrator; with a nil Registerer it has no metrics.
func NewResumer(hydrator *Hydrator, reg prometheus.Registerer) *Resumer {
	return &Resumer{hydrator: hydrator, lost: newCampaignsLost(reg), parked: newEventsParked(reg)}
}

// Resume goes once over all campaigns that are half done and returns how many it completed. A campaign that stays lost from Redis
// is no error here. Any other failure is returned after the others had their turn.
func (r *Resumer) Resume(ctx context.Context) (completed int, err error) {
	fetch := campaigns.Lots(ctx, r.hydrator.db, sqlstore.PageSize, "id",
		"residency NOT IN ? AND epoch > 0 AND applied_version <> version"+
			" OR residency IN ? AND load_attempts > epoch OR residency = ? OR residency = ? AND stream_birth <>"+
			" COALESCE((SELECT birth FROM streams WHERE streams.`partition` = lot.`partition`), stream_birth)",
		[]models.Residency{models.ResidencyEvicted, models.ResidencyLost}, []models.Residency{models.ResidencyNone, models.ResidencyEvicted},
		models.ResidencyLost, models.ResidencyResident)
	err = sqlstore.EachRow(ctx, campaigns.ID, fetch, func(c *models.Campaign) error {
		_, err := r.hydrator.Hydrate(ctx, c.ID)
		switch {
		case err == nil:
			completed++
		case errors.Is(err, campaigns.ErrLost):
			return nil
		}
		return err
	})
	return completed, errors.Join(err, r.count(ctx))
}

// count counts campaigns and events that wait for a person.
func (r *Resumer) count(ctx context.Context) error {
	var lost int64
	err := sqlstore.On(r.hydrator.db.WithContext(ctx)).Scan(&lost, "SELECT COUNT(*) FROM lots WHERE residency = ?", models.ResidencyLost)
	if err != nil {
		return fmt.Errorf("residency: resume: %w", err)
	}
	r.lost.Set(float64(lost))
	var parked int64
	err = sqlstore.On(r.hydrator.db.WithContext(ctx)).Scan(&parked, "SELECT COUNT(*) FROM parked_events WHERE discarded_at IS NULL")
	if err != nil {
		return fmt.Errorf("residency: resume: %w", err)
	}
	r.parked.Set(float64(parked))
	return nil
}
