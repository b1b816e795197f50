package writer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/steps"

	"gorm.io/gorm"
)

// errUnknownCampaign says that a batch holds claims of a campaign that MySQL does not have.
var errUnknownCampaign = errors.New("writer: no such campaign")

// store writes batches to the database.
type store struct {
	tuning

	db      *gorm.DB
	witness FlushLog // or nil
	steps   steps.Steps
}

// commit writes rows and their sums in one transaction: all of them or nothing. A brief one waits only a second for each lock of
// another transaction. After an error of unknown outcome it may be
// called again: claims that were committed are duplicates then.
func (s *store) commit(ctx context.Context, brief bool, rows []*row, sums map[string]*tally) error {
	ctx, cancel := context.WithTimeout(ctx, s.flushTimeout)
	defer cancel()
	started := s.clock.Now()
	s.steps.At("begin")
	inTx := sqlstore.InTx
	if brief {
		inTx = sqlstore.InTxBrief
	}
	before := s.flushesBefore(ctx, sums)
	holdForMs, err := holdsOf(ctx, s.db.WithContext(ctx).Statement.ConnPool, sums)
	if err != nil {
		return fmt.Errorf("lots: %w", err)
	}
	var ids map[string]string
	err = inTx(ctx, s.db, func(tx *sqlstore.Tx) (err error) {
		err = requireFlushes(ctx, tx, before)
		if err == nil {
			ids, err = s.write(ctx, tx, started, rows, sums, holdForMs)
		}
		return err
	})
	if err == nil {
		s.steps.At("committed")
	}
	return s.recordOutcome(ctx, sums, ids, err)
}

// write is the transaction. It returns the ids of the rows in stock_flushes by lot.
func (s *store) write(
	ctx context.Context, tx *sqlstore.Tx, started time.Time, rows []*row, sums map[string]*tally, holdForMs map[string]int64,
) (flushes map[string]string, err error) {
	s.steps.At("begun")
	rows, transfers := split(rows)
	if err := insertClaims(ctx, tx, rows, started); err != nil {
		return nil, fmt.Errorf("claims: %w", err)
	}
	if err := insertTransfers(ctx, tx, transfers); err != nil {
		return nil, err
	}
	s.steps.At("claims in")
	if err := setOwners(ctx, tx, rows); err != nil {
		return nil, fmt.Errorf("packets: %w", err)
	}
	ids, err := insertFlushes(ctx, tx, sums, holdForMs, s.clock.Since(started), s.clock.Now())
	if err != nil {
		return nil, fmt.Errorf("stock_flushes: %w", err)
	}
	s.steps.At("flushes in")
	// Last, so that the hot row of a campaign is locked for one statement and the commit.
	// Claims of a campaign whose claims are in the archive are there already. synced_seq grows in each row, so all that match are counted.
	moved, err := moveCounters(ctx, tx, deltasOf(sums), " AND archived_claims = 0", s.clock.Now())
	if err == nil && moved != int64(len(sums)) {
		err = sqlstore.Final(errUnknownCampaign)
	}
	if err == nil {
		err = requireLoads(ctx, tx, transfers)
	}
	if err != nil {
		return nil, fmt.Errorf("lots: %w", err)
	}
	s.steps.At("books moved")
	return ids, nil
}

// isConflict reports whether rows of a batch contradict what MySQL holds: the same batch would fail again.
func isConflict(err error) bool {
	return errors.Is(err, errUnknownCampaign) || errors.Is(err, errStaleTransfer) || errors.Is(err, errPacketTaken)
}
