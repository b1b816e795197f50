package sqlstore

import (
	"context"
	"database/sql"
	"strings"
)

// Querier reads: a pool, a transaction, or the ConnPool of a gorm.DB.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Execer writes: a *sql.Tx, or tx.Statement.ConnPool of a gorm transaction.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// ScanAll runs a query and calls take for each row.
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

// Marks are the placeholders of n values behind IN; n is at least 1.
func Marks(n int) string { return "(?" + strings.Repeat(",?", n-1) + ")" }
