package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strconv"

	"dibs/internal/migrations"

	"gorm.io/gorm"
)

// Database is a gorm.DB or a Tx. Its name is migrations.MySQL or migrations.SQLite.
type Database interface{ Name() string }

// Tx is a transaction.
type Tx struct {
	*sql.Tx

	name string
}

// Name implements Database.
func (tx *Tx) Name() string { return tx.name }

// Gorm has db work in the transaction.
func (tx *Tx) Gorm(ctx context.Context, db *gorm.DB) *gorm.DB {
	in := db.Session(&gorm.Session{NewDB: true, Context: ctx, SkipDefaultTransaction: true})
	in.Statement.ConnPool = tx.Tx
	return in
}

// InTx runs change in a transaction and commits it. An error of change rolls the transaction back and is returned as it is.
// After an error of the commit itself no one knows whether it took effect. To try again, see Retry.
func InTx(ctx context.Context, db *gorm.DB, change func(tx *Tx) error) error {
	return inTx(ctx, db, nil, change)
}

// InSnapshot runs read in a transaction that sees the database at one moment and changes nothing. Errors: as of InTx.
func InSnapshot(ctx context.Context, db *gorm.DB, read func(tx *Tx) error) error {
	if db.Name() == migrations.SQLite { // its transactions are snapshots, and its driver takes no options
		return inTx(ctx, db, nil, read)
	}
	return inTx(ctx, db, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, read)
}

// InTxBrief is InTx, but waits only a second for each lock of another transaction; see IsLockWait. SQLite has no such locks.
func InTxBrief(ctx context.Context, db *gorm.DB, change func(tx *Tx) error) error {
	if db.Name() == migrations.SQLite {
		return InTx(ctx, db, change)
	}
	pool, err := db.DB()
	if err != nil {
		return fmt.Errorf("sqlstore: begin: %w", err)
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return fmt.Errorf("sqlstore: begin: %w", err)
	}
	defer func() { _ = conn.Close() }() // gives it back to the pool
	var seconds int                     // no user variable holds it: behind a proxy they tie a connection to one server
	err = conn.QueryRowContext(ctx, "SELECT @@"+lockWaitVariable).Scan(&seconds)
	if err == nil {
		_, err = conn.ExecContext(ctx, "SET SESSION "+lockWaitVariable+" = 1")
	}
	if err != nil {
		return fmt.Errorf("sqlstore: begin: %w", err)
	}
	defer restoreLockWait(ctx, conn, seconds)
	return runTx(ctx, db, conn, nil, change)
}

// restoreLockWait undoes what InTxBrief set, or drops the connection.
func restoreLockWait(ctx context.Context, conn *sql.Conn, seconds int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
	defer cancel()
	if _, err := conn.ExecContext(ctx, "SET SESSION "+lockWaitVariable+" = "+strconv.Itoa(seconds)); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

func inTx(ctx context.Context, db *gorm.DB, how *sql.TxOptions, run func(tx *Tx) error) error {
	pool, err := db.DB()
	if err != nil {
		return fmt.Errorf("sqlstore: begin: %w", err)
	}
	return runTx(ctx, db, pool, how, run)
}

// beginner is a pool or a connection.
type beginner interface {
	BeginTx(ctx context.Context, how *sql.TxOptions) (*sql.Tx, error)
}

func runTx(ctx context.Context, db *gorm.DB, on beginner, how *sql.TxOptions, run func(tx *Tx) error) error {
	tx, err := on.BeginTx(ctx, how)
	if err != nil {
		return fmt.Errorf("sqlstore: begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing left to undo
	if err := run(&Tx{tx, db.Name()}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlstore: commit: %w", err)
	}
	return nil
}
