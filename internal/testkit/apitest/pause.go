package apitest

import (
	"context"
	"slices"
	"time"

	"dibs/models"
)

// Pause pauses a campaign, regardless of Fail.
func (r *Fake) Pause(_ context.Context, id string) (models.Campaign, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	c := r.Campaigns[id]
	if c == nil {
		return models.Campaign{}, models.ErrNotFound
	}
	c.Status = models.StatusPaused
	return c.Campaign, nil
}

// PauseAll pauses every campaign.
func (r *Fake) PauseAll(context.Context, time.Duration) (paused []string, isAll bool, err error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for id, c := range r.Campaigns {
		c.Status = models.StatusPaused
		paused = append(paused, id)
	}
	slices.Sort(paused)
	return paused, r.Fail == nil, nil
}
