package cmd

import (
	"context"
	"fmt"
	"time"

	"dibs/finance"
	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/compare"
	"dibs/syncer/writer"
)

const (
	drainPoll  = 20 * time.Millisecond
	listAtOnce = 100
)

// account is what both servers say of a campaign.
type account struct {
	compare.Comparison

	shards []models.ShardFigures // none in a campaign of one
	moves  struct{ Moves, Units int64 }
	synced bool          // every claim was in the database within the time allowed
	took   time.Duration // until it was
}

// books waits until every claim of a campaign is in the database, then compares both servers.
func (s *stack) books(ctx context.Context, campaignID string, wait time.Duration) (a account, err error) {
	start := time.Now()
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for !a.synced {
		a.Comparison, err = s.comparer().Compare(ctx, campaignID)
		if err != nil {
			return a, err
		}
		a.took = time.Since(start)
		a.synced = a.Backlog != nil && *a.Backlog == 0 && a.Drift != nil
		if !a.synced && sleep.For(waiting, drainPoll) != nil {
			break
		}
	}
	of, err := s.campaigns.ShardsOf(ctx, campaignID)
	if err != nil || len(of.Shards) < 2 {
		return a, err
	}
	a.shards = of.Shards
	err = sqlstore.On(s.db.WithContext(ctx)).Scan(&a.moves,
		"SELECT COUNT(*) AS moves, COALESCE(SUM(units), 0) AS units FROM stock_moves WHERE campaign_id = ?", campaignID)
	if err != nil {
		return a, fmt.Errorf("cmd: count moves: %w", err)
	}
	return a, nil
}

// drainEmbedded waits until the database has everything that the embedded Redis holds: it ends with this process.
func (s *stack) drainEmbedded() {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.ShutdownTimeout/2)
	defer cancel()
	if err := writer.NewAppliedStreams(s.db, s.scripts).AwaitApplied(ctx); err != nil {
		s.log.Error("what is left in the embedded redis may be lost", "error", err)
	}
	for p := range s.cfg.Partitions {
		if s.credits && !s.awaitCredited(ctx, p) {
			s.log.Error("events in the embedded redis were not credited", "partition", p)
		}
	}
}

// awaitCredited polls until the finance service has acked everything that a stream holds; false when ctx ends first.
func (s *stack) awaitCredited(ctx context.Context, partition int) bool {
	for {
		stream, err := s.scripts.Stream(ctx, partition)
		if err == nil {
			unread, unreadErr := s.scripts.Unread(ctx, partition, finance.Group)
			if unreadErr == nil && unread.Upto(stream.Tip) {
				return true
			}
		}
		if sleep.For(ctx, drainPoll) != nil {
			return false
		}
	}
}
