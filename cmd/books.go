package cmd

import (
	"context"
	"fmt"
	"time"

	"dibs/internal/process"
	"dibs/internal/sleep"
	"dibs/models"
	"dibs/syncer/compare"
)

const (
	drainPoll  = 20 * time.Millisecond
	listAtOnce = 100
)

type account struct {
	compare.Comparison

	shards []models.ShardFigures // none in a campaign of one shard
	moves  struct{ Moves, Units int64 }
	synced bool          // every claim reached the database in time
	took   time.Duration // how long that took
}

// books waits until every claim of a campaign is in the database, then
// compares both servers.
func books(ctx context.Context, s *process.Stack, campaignID string, wait time.Duration) (a account, err error) {
	start := time.Now()
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for !a.synced {
		a.Comparison, err = s.Comparer().Compare(ctx, campaignID)
		if err != nil {
			return a, err
		}
		a.took = time.Since(start)
		a.synced = a.Backlog != nil && *a.Backlog == 0 && a.Drift != nil
		if !a.synced && sleep.For(waiting, drainPoll) != nil {
			break
		}
	}
	of, err := s.Campaigns.ShardsOf(ctx, campaignID)
	if err != nil || len(of.Shards) < 2 {
		return a, err
	}
	a.shards = of.Shards
	err = s.DB.WithContext(ctx).Raw("SELECT COUNT(*) AS moves, COALESCE(SUM(units), 0) AS units FROM stock_moves "+
		"WHERE campaign_id = ?", campaignID).
		Scan(&a.moves).Error
	if err != nil {
		return a, fmt.Errorf("cmd: count moves: %w", err)
	}
	return a, nil
}
