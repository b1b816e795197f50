package sqlstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"dibs/internal/migrations"

	"gorm.io/gorm"
)

// Exec runs a statement as it is written, with a placeholder for each argument,
// and returns how many rows it changed. So gorm does not parse it: see tx.Exec
// for statements that are short, or have lists.
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
	defer func() { _ = rows.Close() }() // rows.Err says what matters
	for rows.Next() {
		if err := take(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// ByIndex has a query go by an index of the table before it, whatever the
// server thinks of its statistics.
func ByIndex(on *gorm.DB, index string) string {
	if on.Name() == migrations.SQLite {
		return " INDEXED BY " + index
	}
	return " FORCE INDEX (" + index + ")"
}

// ByKey is ByIndex for the primary key: a scan of a small table would lock all
// its rows.
func ByKey(on *gorm.DB) string {
	if on.Name() == migrations.SQLite {
		return ""
	}
	return ByIndex(on, "PRIMARY")
}

// ForUpdate ends a query whose rows are locked until the transaction ends. In
// SQLite a transaction that writes is alone.
func ForUpdate(on *gorm.DB) string {
	if on.Name() == migrations.SQLite {
		return ""
	}
	return " FOR UPDATE"
}

// InShareMode ends a query whose rows no other transaction changes until this
// one ends. In SQLite a transaction that writes is alone.
func InShareMode(on *gorm.DB) string {
	if on.Name() == migrations.SQLite {
		return ""
	}
	return " LOCK IN SHARE MODE"
}

// Marks are the placeholders of n values behind IN; n is at least 1.
func Marks(n int) string { return "(?" + strings.Repeat(",?", n-1) + ")" }

// Args are values as arguments of a query.
func Args[T any](values []T) []any {
	args := make([]any, len(values))
	for i := range values {
		args[i] = values[i]
	}
	return args
}

// Keys are the keys of rows, in their order.
func Keys[T any](rows []T, key func(*T) string) []string {
	keys := make([]string, len(rows))
	for i := range rows {
		keys[i] = key(&rows[i])
	}
	return keys
}

// FirstIDAt is how every UUIDv7 of a millisecond begins that is not before at.
func FirstIDAt(at time.Time) string {
	text := fmt.Sprintf("%012x", at.UnixMilli())
	return text[:8] + "-" + text[8:]
}

// Case is an expression that has a value for each of some rows, by their ids,
// and 0 for other rows. Its arguments are appended to args.
func Case[T any](args *[]any, of []T, id func(*T) string, value func(*T) any) string {
	for i := range of {
		*args = append(*args, id(&of[i]), value(&of[i]))
	}
	return "CASE id" + strings.Repeat(" WHEN ? THEN ?", len(of)) + " ELSE 0 END"
}
