package lab

import (
	"context"
	"database/sql"
	"fmt"
)

// forUpdate locks the stock's row in MySQL, reads it, decides and writes: the database's own lock around read-then-write.
type forUpdate struct{ counter }

func forUpdateRung() Rung {
	return Rung{
		Name: "for-update", Title: "MySQL SELECT … FOR UPDATE", Flaw: "everybody queues behind one row, whatever its holder waits for",
		Sound: true, DieAt: StepRead,
		New: func(env Env) (Strategy, error) { return &forUpdate{counter{env}}, nil },
	}
}

// Prepare writes the row.
func (s *forUpdate) Prepare(ctx context.Context) error { return s.prepareRow(ctx) }

// Claim sells inside a transaction that holds the row.
func (s *forUpdate) Claim(ctx context.Context, user string) (Outcome, error) {
	return s.transact(ctx, func(ctx context.Context, tx *sql.Tx) (Outcome, error) {
		var stock, had int64
		err := tx.QueryRowContext(ctx, `SELECT s.remaining, COALESCE(u.had, 0) FROM lab_stock s
			LEFT JOIN lab_users u ON u.campaign_id = s.campaign_id AND u.user_id = ? WHERE s.campaign_id = ? FOR UPDATE`,
			user, s.Campaign.ID).Scan(&stock, &had)
		if err != nil {
			return 0, fmt.Errorf("lab: lock row: %w", err)
		}
		if err := s.at(StepRead); err != nil {
			return 0, err
		}
		if outcome := s.decide(stock, had); outcome != Claimed {
			return outcome, nil
		}
		return Claimed, s.write(ctx, tx, user)
	})
}

func (s *forUpdate) write(ctx context.Context, tx *sql.Tx, user string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO lab_users (campaign_id, user_id, had) VALUES (?, ?, 1) ON DUPLICATE KEY UPDATE had = had + 1",
		s.Campaign.ID, user)
	if err != nil {
		return fmt.Errorf("lab: count: %w", err)
	}
	_, err = takeOne(ctx, tx, s.Campaign.ID)
	return err
}
