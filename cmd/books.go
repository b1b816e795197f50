package cmd

import (
	"context"
	"fmt"
	"time"

	"dibs/finance"
	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/writer"
)

const (
	drainPoll  = 20 * time.Millisecond
	listAtOnce = 100
)

// books waits until every claim of a campaign is in the database, then reads what both servers say of it.
func (s *stack) books(ctx context.Context, campaignID string, wait time.Duration) (bookFigures, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	synced, err := s.awaitSynced(ctx, campaignID)
	if err != nil {
		return bookFigures{}, err
	}
	took := time.Since(start)
	reading, cancelReading := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancelReading()
	b, err := s.readBooks(reading, campaignID)
	b.synced = synced
	b.took = took
	return b, err
}

func (s *stack) readBooks(ctx context.Context, campaignID string) (bookFigures, error) {
	held, err := s.held(ctx, campaignID)
	if err != nil {
		return bookFigures{}, err
	}
	books, err := s.campaigns.Books(ctx, campaignID)
	if err != nil {
		return bookFigures{}, err
	}
	b := bookFigures{
		total: held.total, redisTaken: held.taken, redisRemaining: held.remaining, redisSeq: held.seq, shards: held.shards,
		sqlClaimed: books.Claimed, sqlRemaining: books.Remaining, sqlSeq: books.SyncedSeq,
	}
	err = sqlstore.On(s.db.WithContext(ctx)).Row("SELECT COALESCE(SUM(n), 0), COALESCE(SUM(units), 0), COALESCE(SUM(last_seq), 0) FROM"+
		" (SELECT COUNT(*) AS n, SUM(quantity) AS units, MAX(seq) AS last_seq FROM claims WHERE campaign_id = ? GROUP BY shard) by_shard",
		campaignID).Scan(&b.sqlRows, &b.sqlUnits, &b.sqlLastSeq)
	if err != nil {
		return bookFigures{}, fmt.Errorf("cmd: count claims: %w", err)
	}
	if len(b.shards) > 0 {
		err = sqlstore.On(s.db.WithContext(ctx)).Scan(&b.moves,
			"SELECT COUNT(*) AS moves, COALESCE(SUM(units), 0) AS units FROM stock_moves WHERE campaign_id = ?", campaignID)
	}
	if err != nil {
		return bookFigures{}, fmt.Errorf("cmd: count moves: %w", err)
	}
	return b, nil
}

// holding is what Redis holds of a campaign, in units; of one of several shards their sums.
type holding struct {
	total, taken, remaining, seq int64
	shards                       []models.ShardFigures // none in a campaign of one
}

func (s *stack) held(ctx context.Context, campaignID string) (holding, error) {
	c, err := s.campaigns.Get(ctx, campaignID)
	if err != nil {
		return holding{}, err
	}
	if !c.IsSharded() {
		state, err := s.scripts.State(ctx, campaignID)
		return holding{total: state.Total, taken: state.Taken, remaining: state.Remaining(), seq: state.Seq}, err
	}
	of, err := s.campaigns.ShardsOf(ctx, campaignID)
	h := holding{total: of.Total, shards: of.Shards}
	for i := range of.Shards {
		shard := &of.Shards[i]
		h.taken += shard.Claimed
		h.remaining += shard.Free
		h.seq += shard.Seq
	}
	return h, err
}

// awaitSynced polls until the database has as many claims as Redis handed out, parked ones among them; false when ctx ends first.
func (s *stack) awaitSynced(ctx context.Context, campaignID string) (bool, error) {
	for {
		held, err := s.held(ctx, campaignID)
		if err == nil {
			books, booksErr := s.campaigns.Books(ctx, campaignID)
			if booksErr == nil && books.SyncedSeq+books.ParkedClaims == held.seq {
				return true, nil
			}
			err = booksErr
		}
		if sleep.For(ctx, drainPoll) != nil {
			return false, nil //nolint:nilerr // ctx ended first
		}
		if err != nil {
			return false, err
		}
	}
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
