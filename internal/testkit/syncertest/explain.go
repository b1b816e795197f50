package syncertest

import (
	"database/sql"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// Step is a line of a SQL server's query plan.
type Step struct {
	Table string
	Type  string // ALL scans the table, index an index
	Key   string
	Rows  int64 // to examine, as estimated
}

// Explain returns a SQL server's plan for a query, after
// updating the statistics of its tables.
func Explain(t testing.TB, db *gorm.DB, tables []string, query string, args ...any) (steps []Step) {
	t.Helper()
	for _, table := range tables {
		require.NoError(t, db.Exec("ANALYZE TABLE "+table).Error)
	}
	// MySQL 9.7 draws a tree without a format.
	for _, row := range Rows(t, db, "EXPLAIN FORMAT=TRADITIONAL "+query, args...) {
		examined, _ := strconv.ParseInt(row["rows"], 10, 64) // NULL is 0
		steps = append(steps, Step{Table: row["table"], Type: row["type"], Key: row["key"], Rows: examined})
	}
	return steps
}

// Rows returns a query's rows by column name. NULL is "".
func Rows(t testing.TB, db *gorm.DB, query string, args ...any) (all []map[string]string) {
	t.Helper()
	rows, err := db.Raw(query, args...).Rows()
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		row := make(map[string]string)
		for i := range values {
			into[i] = &values[i]
		}
		require.NoError(t, rows.Scan(into...))
		for i, name := range columns {
			row[name] = values[i].String
		}
		all = append(all, row)
	}
	require.NoError(t, rows.Err())
	return all
}
