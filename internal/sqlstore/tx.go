package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"dibs/internal/migrations"

	"gorm.io/gorm"
)

// InSnapshot runs read in a read-only transaction that sees one
// moment of the database.
func InSnapshot(ctx context.Context, db *gorm.DB, read func(tx *gorm.DB) error) error {
	// its transactions are snapshots, and its driver takes no options
	if db.Name() == migrations.SQLite {
		return db.WithContext(ctx).Transaction(read)
	}
	return db.WithContext(ctx).Transaction(read, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
}

// InTx runs change in a transaction, and retries it as Retry does:
// change runs again each time.
func InTx(ctx context.Context, db *gorm.DB, change func(tx *gorm.DB) error) error {
	return Retry(ctx, func() error { return db.WithContext(ctx).Transaction(change) })
}

// InTxBrief runs change in a transaction that waits only a second for each
// lock; see IsLockWait. SQLite has no such locks.
func InTxBrief(ctx context.Context, db *gorm.DB, change func(tx *gorm.DB) error) error {
	if db.Name() == migrations.SQLite {
		return db.WithContext(ctx).Transaction(change)
	}
	return db.WithContext(ctx).Connection(func(one *gorm.DB) error {
		conn := one.Session(&gorm.Session{NewDB: true})
		// not kept in a user variable: behind a proxy it ties a
		// connection to one server
		var seconds int
		if err := conn.Raw("SELECT @@" + lockWaitVariable).Scan(&seconds).Error; err != nil {
			return fmt.Errorf("sqlstore: begin: %w", err)
		}
		defer restoreLockWait(ctx, conn, seconds)
		if err := setLockWait(conn, 1); err != nil {
			return fmt.Errorf("sqlstore: begin: %w", err)
		}
		return conn.Transaction(change)
	})
}

func setLockWait(conn *gorm.DB, seconds int) error {
	return conn.Exec("SET SESSION "+lockWaitVariable+" = ?", seconds).Error
}

// restoreLockWait undoes what InTxBrief set, or drops the connection.
func restoreLockWait(ctx context.Context, conn *gorm.DB, seconds int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
	defer cancel()
	if setLockWait(conn.WithContext(ctx), seconds) == nil {
		return
	}
	if held, is := conn.Statement.ConnPool.(*sql.Conn); is {
		_ = held.Raw(func(any) error { return driver.ErrBadConn })
	}
}
