package sqlstore

import (
	"context"
	"database/sql"
	"strings"

	"gorm.io/gorm"
)

// querier is a pool or a transaction.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// execer is a transaction: a *sql.Tx, or tx.Statement.ConnPool of a gorm one.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// scanAll runs a query and hands each row to take.
func ScanAll(ctx context.Context, q Querier, query string, args []any, take func(scan func(...any) error) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // rows.Err says what matters
	for rows.Next() {
		if err := take(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// snapshotOf is the isolation that shows one moment; SQLite has no other.
func SnapshotIsolation(db *gorm.DB) sql.IsolationLevel {
	if db.Name() == "sqlite" {
		return sql.LevelDefault
	}
	return sql.LevelRepeatableRead
}

// Marks are the placeholders of n values behind IN; n is at least 1.
func Marks(n int) string { return "(?" + strings.Repeat(",?", n-1) + ")" }
