package lab

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
)

// tables of the strategies that keep books in MySQL: the stock of a campaign, and what each user has had.
var tables = []string{
	`CREATE TABLE IF NOT EXISTS lab_stock (
		campaign_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
		remaining BIGINT NOT NULL
	) ENGINE=InnoDB`,
	`CREATE TABLE IF NOT EXISTS lab_users (
		campaign_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
		user_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
		had BIGINT NOT NULL,
		PRIMARY KEY (campaign_id, user_id)
	) ENGINE=InnoDB`,
}

func createTables(ctx context.Context, db *sql.DB) error {
	for _, statement := range tables {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("lab: create tables: %w", err)
		}
	}
	return nil
}

// prepareRow writes the stock of a campaign to MySQL.
func (e *Env) prepareRow(ctx context.Context) error {
	if err := createTables(ctx, e.DB); err != nil {
		return err
	}
	_, err := e.DB.ExecContext(ctx, "REPLACE INTO lab_stock (campaign_id, remaining) VALUES (?, ?)", e.Campaign.ID, e.Campaign.Units)
	if err != nil {
		return fmt.Errorf("lab: prepare: %w", err)
	}
	return nil
}

// takeOne is the one UPDATE a claim; false when the row says that nothing is left.
func takeOne(ctx context.Context, on execer, campaignID string) (bool, error) {
	res, err := on.ExecContext(ctx, "UPDATE lab_stock SET remaining = remaining - 1 WHERE campaign_id = ? AND remaining >= 1", campaignID)
	if err != nil {
		return false, fmt.Errorf("lab: take: %w", err)
	}
	changed, err := res.RowsAffected()
	if err != nil {
		return false, fmt.Errorf("lab: take: %w", err)
	}
	return changed == 1, nil
}

// countFor adds one to what a user has had, unless that is the limit already: MySQL counts a row that stays as it was as 0.
func (e *Env) countFor(ctx context.Context, tx *sql.Tx, user string) (bool, error) {
	most := e.Campaign.PerUser
	if most == 0 {
		most = math.MaxInt64
	}
	res, err := tx.ExecContext(ctx, `INSERT INTO lab_users (campaign_id, user_id, had) VALUES (?, ?, 1)
		ON DUPLICATE KEY UPDATE had = had + (had < ?)`, e.Campaign.ID, user, most)
	if err != nil {
		return false, fmt.Errorf("lab: count: %w", err)
	}
	changed, err := res.RowsAffected()
	if err != nil {
		return false, fmt.Errorf("lab: count: %w", err)
	}
	return changed > 0, nil
}

// execer is what a database, a connection and a transaction share.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Errors of InnoDB after which a transaction was rolled back and may be tried again.
const (
	lockWaitTimeout = 1205
	deadlock        = 1213
)

// transact runs one claim's transaction, again after a deadlock, until patience is over. The transaction commits when do
// says Claimed and is rolled back otherwise.
func (e *Env) transact(ctx context.Context, do func(ctx context.Context, tx *sql.Tx) (Outcome, error)) (Outcome, error) {
	ctx, cancel := e.within(ctx)
	defer cancel()
	for {
		outcome, err := e.transactOnce(ctx, do)
		switch {
		case err == nil:
			return outcome, nil
		case errors.Is(ctx.Err(), context.DeadlineExceeded), isMySQL(err, lockWaitTimeout):
			return Busy, nil
		case !isMySQL(err, deadlock):
			return 0, err
		}
	}
}

func (e *Env) transactOnce(ctx context.Context, do func(ctx context.Context, tx *sql.Tx) (Outcome, error)) (Outcome, error) {
	tx, err := e.DB.BeginTx(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("lab: begin: %w", err)
	}
	outcome, err := do(ctx, tx)
	if err != nil || outcome != Claimed {
		return outcome, errors.Join(err, ignoreDone(tx.Rollback()))
	}
	if err := tx.Commit(); err != nil {
		return 0, fmt.Errorf("lab: commit: %w", err)
	}
	return Claimed, nil
}

// ignoreDone is for a rollback that the end of a context has done already.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}
