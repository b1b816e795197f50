package writer

import (
	"context"
	"database/sql"
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

	db    *gorm.DB
	steps steps.Steps
}

// commit writes rows and their sums in one transaction: all of them or nothing. A brief one waits only a second for each lock of
// another transaction. After an error of unknown outcome it may be
// called again: claims that were committed are duplicates then.
func (s *store) commit(ctx context.Context, brief bool, rows []*row, sums map[string]*tally) error {
	ctx, cancel := context.WithTimeout(ctx, s.flushTimeout)
	defer cancel()
	begun := s.clock.Now()
	s.steps.At("begin")
	inTx := sqlstore.InTx
	if brief {
		inTx = sqlstore.InTxBrief
	}
	if err := inTx(ctx, s.db, func(tx *sql.Tx) error { return s.write(ctx, tx, begun, rows, sums) }); err != nil {
		return fmt.Errorf("writer: flush: %w", err)
	}
	s.steps.At("committed")
	return nil
}

// write is the transaction.
func (s *store) write(ctx context.Context, tx *sql.Tx, begun time.Time, rows []*row, sums map[string]*tally) error {
	s.steps.At("begun")
	if err := insertClaims(ctx, tx, s.db.Name(), rows, begun); err != nil {
		return fmt.Errorf("claims: %w", err)
	}
	s.steps.At("claims in")
	if err := setOwners(ctx, tx, s.db.Name(), rows); err != nil {
		return fmt.Errorf("packets: %w", err)
	}
	ids, err := insertFlushes(ctx, tx, sums, s.clock.Since(begun), s.clock.Now())
	if err != nil {
		return fmt.Errorf("stock_flushes: %w", err)
	}
	s.steps.At("flushes in")
	// Last, so that the hot row of a campaign is locked for one statement and the commit.
	if err := moveBooks(ctx, tx, s.db.Name(), ids, s.clock.Now()); err != nil {
		return fmt.Errorf("campaigns: %w", err)
	}
	s.steps.At("books moved")
	return nil
}

// isConflict tells whether rows of a batch contradict what MySQL holds: the same batch would fail again.
func isConflict(err error) bool {
	return errors.Is(err, errUnknownCampaign) || errors.Is(err, errPacketTaken)
}
