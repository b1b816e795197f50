package lab

import (
	"context"
	"database/sql"
	"fmt"
)

// forUpdate locks the stock's row in MySQL, reads it, decides and writes: the database's own lock around read-then-write.
type forUpdate struct{ counter }

func forUpdateStrategy() Entry {
	return Entry{
		Name: "for-update", Title: "MySQL SELECT … FOR UPDATE", Flaw: "everybody queues behind one row, whatever its holder waits for",
		Sound: true, DieAt: StepRead,
		New: func(env Env) (Strategy, error) { return &forUpdate{counter{env}}, nil },
	}
}

// Prepare writes the row.
func (s *forUpdate) Prepare(ctx context.Context) error { return s.prepareRow(ctx) }

// Claim sells inside a transaction that holds the row. The user's row is not read FOR UPDATE: where there is none yet, that
// would lock the gap in which other coupons' users are to be inserted.
func (s *forUpdate) Claim(ctx context.Context, user string) (Outcome, error) {
	return s.transact(ctx, func(ctx context.Context, tx *sql.Tx) (Outcome, error) {
		var stock int64
		const lock = "SELECT remaining FROM lab_stock WHERE campaign_id = ? FOR UPDATE"
		if err := tx.QueryRowContext(ctx, lock, s.Campaign.ID).Scan(&stock); err != nil {
			return 0, fmt.Errorf("lab: lock row: %w", err)
		}
		if err := s.at(StepRead); err != nil {
			return 0, err
		}
		if stock < 1 {
			return SoldOut, nil
		}
		counted, err := s.countFor(ctx, tx, user)
		if err != nil || !counted {
			return OverLimit, err
		}
		_, err = takeOne(ctx, tx, s.Campaign.ID)
		return Claimed, err
	})
}
