package syncer

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"
)

// sweepBatch bounds a page of campaigns to complete.
const sweepBatch = 100

// Sweeper completes what a process that died, or a Redis that was away, left half done: changes that Redis does not have
// yet, and first loads that were begun. Any number may run at once.
type Sweeper struct {
	db       *gorm.DB
	hydrator *Hydrator
}

// NewSweeper makes a sweeper that completes campaigns through hydrator.
func NewSweeper(db *gorm.DB, hydrator *Hydrator) *Sweeper {
	return &Sweeper{db: db, hydrator: hydrator}
}

// Sweep goes once over all campaigns that are half done and returns how many it completed. Campaigns that are lost from
// Redis stay as they are; they are no error here. Any other failure is returned, after the others had their turn.
func (s *Sweeper) Sweep(ctx context.Context) (completed int, err error) {
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
			case !errors.Is(err, ErrLost) && len(failed) < sweepBatch:
				failed = append(failed, err)
			}
		}
		if len(page) < sweepBatch {
			return completed, errors.Join(failed...)
		}
		after = page[len(page)-1]
	}
}

func (s *Sweeper) page(ctx context.Context, after string) ([]string, error) {
	var ids []string
	err := s.db.WithContext(ctx).Raw("SELECT id FROM campaigns WHERE id > ? AND"+
		" (epoch > 0 AND applied_version <> version OR epoch = 0 AND load_attempts > 0) ORDER BY id LIMIT ?", after, sweepBatch).
		Scan(&ids).Error
	if err != nil {
		return nil, fmt.Errorf("syncer: sweep: %w", err)
	}
	return ids, nil
}
