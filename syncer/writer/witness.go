package writer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"dibs/internal/sqlstore"
)

// FlushLog remembers elsewhere which flushes MySQL committed, so that a MySQL that was returned is noticed before it gets more claims.
type FlushLog interface {
	// Flushes are the ids of flushes that MySQL committed of claims of some campaigns, or of others beside them.
	Flushes(ctx context.Context, campaignIDs []string) (ids []string, err error)
	// RecordFlushes remembers flushes that were committed, by campaign.
	RecordFlushes(ctx context.Context, byCampaign map[string]string) error
	// RolledBack is notified of campaigns of which MySQL lacks flushes. It has them taken out of use, and then forgets those flushes.
	RolledBack(ctx context.Context, campaignIDs []string) error
}

// witnessTimeout bounds what a flush waits for a Redis that hangs. Then it goes on without.
const witnessTimeout = time.Second

var errRolledBack = errors.New("writer: mysql was restored: it lacks flushes that it had committed")

// flushesBefore are the flushes that MySQL must have before it gets these.
func (s *store) flushesBefore(ctx context.Context, sums map[string]*tally) []string {
	if s.witness == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, witnessTimeout)
	defer cancel()
	ids, err := s.witness.Flushes(ctx, slices.Collect(maps.Keys(sums)))
	if err != nil {
		return nil // Redis is away: the syncers check as soon as it is back
	}
	return ids
}

// requireFlushes fails with errRolledBack when MySQL lacks a flush that it had committed. It asks in the transaction of the next one, which
// no other server commits. A locking read takes no snapshot, to which a server might tie the statements after it.
func requireFlushes(ctx context.Context, tx *sqlstore.Tx, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	query := "SELECT COUNT(*) FROM stock_flushes WHERE id IN " + sqlstore.Marks(len(ids)) + sqlstore.InShareMode(tx)
	var n int
	err := tx.QueryRowContext(ctx, query, sqlstore.Args(ids)...).Scan(&n)
	if err == nil && n < len(ids) {
		err = errRolledBack
	}
	return err
}

// recordOutcome is told how a flush ended, and by which rows of stock_flushes.
func (s *store) recordOutcome(ctx context.Context, sums map[string]*tally, flushes map[string]string, err error) error {
	switch {
	case s.witness == nil:
	case errors.Is(err, errRolledBack):
		return errors.Join(err, s.witness.RolledBack(ctx, slices.Collect(maps.Keys(sums))))
	case err == nil:
		ctx, cancel := context.WithTimeout(ctx, witnessTimeout)
		defer cancel()
		_ = s.witness.RecordFlushes(ctx, flushes) // the claims are committed; Redis knows of a flush less
	}
	if err != nil {
		return fmt.Errorf("writer: flush: %w", err)
	}
	return nil
}
