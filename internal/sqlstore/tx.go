package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"dibs/migrations"

	"gorm.io/gorm"
)

// InTx runs change in a transaction and commits it. An error of change rolls the transaction back and is returned as it is.
// After an error of the commit itself nobody knows whether it took effect. To try again, see Retry.
func InTx(ctx context.Context, db *gorm.DB, change func(tx *sql.Tx) error) error {
	return inTx(ctx, db, nil, change)
}

// InSnapshot runs read in a transaction that sees the database at one moment and changes nothing. Errors: as of InTx.
func InSnapshot(ctx context.Context, db *gorm.DB, read func(tx *sql.Tx) error) error {
	if db.Name() == migrations.SQLite { // its transactions are snapshots, and its driver takes no options
		return inTx(ctx, db, nil, read)
	}
	return inTx(ctx, db, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, read)
}

func inTx(ctx context.Context, db *gorm.DB, how *sql.TxOptions, run func(tx *sql.Tx) error) error {
	pool, err := db.DB()
	if err != nil {
		return fmt.Errorf("sqlstore: begin: %w", err)
	}
	tx, err := pool.BeginTx(ctx, how)
	if err != nil {
		return fmt.Errorf("sqlstore: begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing left to undo
	if err := run(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlstore: commit: %w", err)
	}
	return nil
}
