package sqlstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"dibs/internal/migrations"

	"gorm.io/gorm"
)

// Exec runs a statement as written, with a placeholder for each argument, and
// returns the number of changed rows. It bypasses gorm's parser. Use tx.Exec
// for short statements or ones with lists.
func Exec(ctx context.Context, on *gorm.DB, query string, args ...any) (changed int64, err error) {
	result, err := on.Statement.ConnPool.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// ScanAll runs a query and calls take for each row.
func ScanAll(ctx context.Context, on *gorm.DB, query string, args []any, take func(scan func(...any) error) error) error {
	rows, err := on.Statement.ConnPool.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // rows.Err has the error that matters
	for rows.Next() {
		if err := take(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// ByIndex makes a query use an index of the preceding table,
// whatever the server's statistics suggest.
func ByIndex(on *gorm.DB, index string) string {
	if on.Name() == migrations.SQLite {
		return " INDEXED BY " + index
	}
	return " FORCE INDEX (" + index + ")"
}

// ByKey is ByIndex for the primary key: scanning a small table
// would lock all its rows.
func ByKey(on *gorm.DB) string {
	if on.Name() == migrations.SQLite {
		return ""
	}
	return ByIndex(on, "PRIMARY")
}

// ForUpdate ends a query and locks its rows until the transaction ends. In
// SQLite only one transaction writes at a time.
func ForUpdate(on *gorm.DB) string {
	if on.Name() == migrations.SQLite {
		return ""
	}
	return " FOR UPDATE"
}

// InShareMode ends a query and blocks changes of its rows until the
// transaction ends. In SQLite only one transaction writes at a time.
func InShareMode(on *gorm.DB) string {
	if on.Name() == migrations.SQLite {
		return ""
	}
	return " LOCK IN SHARE MODE"
}

// Marks returns n placeholders for IN; n is at least 1.
func Marks(n int) string { return "(?" + strings.Repeat(",?", n-1) + ")" }

// Args converts values to query arguments.
func Args[T any](values []T) []any {
	args := make([]any, len(values))
	for i := range values {
		args[i] = values[i]
	}
	return args
}

// Keys returns the keys of rows, in order.
func Keys[T any](rows []T, key func(*T) string) []string {
	keys := make([]string, len(rows))
	for i := range rows {
		keys[i] = key(&rows[i])
	}
	return keys
}

// FirstIDAt is the prefix of the lowest UUIDv7 of at's millisecond.
func FirstIDAt(at time.Time) string {
	text := fmt.Sprintf("%012x", at.UnixMilli())
	return text[:8] + "-" + text[8:]
}

// Case builds an expression with a value for each given row, by
// id, and 0 for all others. It appends its arguments to args.
func Case[T any](args *[]any, of []T, id func(*T) string, value func(*T) any) string {
	for i := range of {
		*args = append(*args, id(&of[i]), value(&of[i]))
	}
	return "CASE id" + strings.Repeat(" WHEN ? THEN ?", len(of)) + " ELSE 0 END"
}
