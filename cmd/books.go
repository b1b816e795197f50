package cmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"dibs/finance"
	"dibs/internal/sleep"
	"dibs/internal/sqlstore"
	"dibs/models"
	"dibs/syncer/reconcile"
	"dibs/syncer/residency"
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

// drainEmbedded waits until everything that the embedded Redis holds is in the database: it ends with this process.
func (s *stack) drainEmbedded() {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.ShutdownTimeout/2)
	defer cancel()
	for page, err := range s.allCampaigns(ctx) {
		if err != nil {
			s.log.Error("what is left in the embedded redis may be lost", "error", err)
			return
		}
		for i := range page {
			id := page[i].ID
			if page[i].Residency != models.ResidencyResident && !page[i].IsSharded() {
				continue // Redis holds nothing of it that counts
			}
			if synced, err := s.awaitSynced(ctx, id); !synced {
				s.log.Error("claims in the embedded redis did not reach the database", "campaign_id", id, "error", err)
			}
		}
	}
	if err := s.packUp(ctx); err != nil {
		s.log.Error("campaigns in the embedded redis need a repair when the next one starts", "error", err)
	}
	for p := range s.cfg.Partitions {
		if s.credits && !s.awaitCredited(ctx, p) {
			s.log.Error("events in the embedded redis were not credited", "partition", p)
		}
	}
}

// packUp records that everything left the embedded Redis in full, so that a later run with the same database goes on from there.
func (s *stack) packUp(ctx context.Context) error {
	_, err := residency.NewMaintainer(s.hydrator, residency.MinIdle, nil, nil).Evict(ctx)
	return err
}

// unpack puts right what an earlier run with the same database left in an embedded Redis that was gone with it: claims that
// were not in the database yet are lost, and said to be. A campaign that can't be put right takes no claims; the others are served.
func (s *stack) unpack(ctx context.Context) error {
	reconciler := reconcile.New(s.db, s.scripts, s.hydrator, s.log, nil)
	ids, err := s.campaignIDs(ctx, "")
	if err != nil {
		return err
	}
	for _, id := range ids {
		done, err := reconciler.Repair(ctx, id, reconcile.RepairHow{})
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("cmd: the database of an earlier run: %w", err)
		case err != nil:
			s.log.Error("a campaign of an earlier run takes no claims: run dibs reconcile and then --repair", "campaign_id", id, "error", err)
		case !done.Left.Agrees():
			s.log.Warn("the books of a campaign of an earlier run differ: dibs reconcile has the details", "campaign_id", id,
				"differences", strings.Join(done.Left.Differences, "; "))
		}
	}
	return nil
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
