package cmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"dibs/finance"
	"dibs/models"
	"dibs/syncer/reconcile"
	"dibs/syncer/residency"
)

const (
	drainPoll  = 20 * time.Millisecond
	listAtOnce = 100
)

// books waits until every claim of a campaign is in the database, then reads what both servers say of it.
func (s *stack) books(ctx context.Context, campaignID string, wait time.Duration) (ledger, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	synced, err := s.awaitSynced(ctx, campaignID)
	if err != nil {
		return ledger{}, err
	}
	took := time.Since(start)
	reading, cancelReading := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancelReading()
	b, err := s.readBooks(reading, campaignID)
	b.synced, b.took = synced, took
	return b, err
}

func (s *stack) readBooks(ctx context.Context, campaignID string) (ledger, error) {
	state, err := s.scripts.State(ctx, campaignID)
	if err != nil {
		return ledger{}, err
	}
	books, err := s.campaigns.Books(ctx, campaignID)
	if err != nil {
		return ledger{}, err
	}
	b := ledger{
		total: state.Total, redisTaken: state.Taken, redisRemaining: state.Remaining(), redisSeq: state.Seq,
		sqlClaimed: books.Claimed, sqlRemaining: books.Remaining, sqlSeq: books.SyncedSeq,
	}
	err = s.db.WithContext(ctx).Model(&models.ClaimRow{}).Where("campaign_id = ?", campaignID).
		Select("COUNT(*), COALESCE(SUM(quantity), 0), COALESCE(MAX(seq), 0)").Row().Scan(&b.sqlRows, &b.sqlUnits, &b.sqlLastSeq)
	if err != nil {
		return ledger{}, fmt.Errorf("cmd: count claims: %w", err)
	}
	return b, nil
}

// awaitSynced polls until the database has as many claims as Redis handed out, parked ones among them; false when ctx ends first.
func (s *stack) awaitSynced(ctx context.Context, campaignID string) (bool, error) {
	ticker := time.NewTicker(drainPoll)
	defer ticker.Stop()
	for {
		state, err := s.scripts.State(ctx, campaignID)
		if err == nil {
			books, booksErr := s.campaigns.Books(ctx, campaignID)
			if booksErr == nil && books.SyncedSeq+books.ParkedClaims == state.Seq {
				return true, nil
			}
			err = booksErr
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-ticker.C:
		}
		if err != nil && ctx.Err() == nil {
			return false, err
		}
	}
}

// drainEmbedded waits until everything that the embedded Redis holds is in the database: it ends with this process.
func (s *stack) drainEmbedded() {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.ShutdownTimeout/2)
	defer cancel()
	after := ""
	for {
		page, err := s.campaigns.List(ctx, after, listAtOnce)
		if err != nil {
			s.log.Error("what is left in the embedded redis may be lost", "error", err)
			return
		}
		for i := range page {
			after = page[i].ID
			if page[i].Residency != models.ResidencyResident {
				continue // Redis holds nothing of it that counts
			}
			if synced, err := s.awaitSynced(ctx, after); !synced {
				s.log.Error("claims in the embedded redis did not reach the database", "campaign_id", after, "error", err)
			}
		}
		if len(page) < listAtOnce {
			break
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
	_, err := residency.NewEvictor(s.hydrator, residency.IdleLeast, nil).Evict(ctx)
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
	ticker := time.NewTicker(drainPoll)
	defer ticker.Stop()
	for {
		stream, err := s.scripts.Stream(ctx, partition)
		if err == nil {
			unread, unreadErr := s.scripts.Unread(ctx, partition, finance.Group)
			if unreadErr == nil && unread.Upto(stream.Tip) {
				return true
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
}
