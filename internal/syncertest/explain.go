package syncertest

import (
	"database/sql"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// Step is a line of what a SQL server plans to do for a query.
type Step struct {
	Table string
	Type  string // ALL is a scan of the table, index one of an index
	Key   string
	Rows  int64 // examined, by the server's estimate
}

// Explain asks a SQL server how it would run a query, with the statistics of its tables brought up to date.
func Explain(t testing.TB, db *gorm.DB, tables []string, query string, args ...any) (steps []Step) {
	t.Helper()
	for _, table := range tables {
		require.NoError(t, db.Exec("ANALYZE TABLE "+table).Error)
	}
	// MySQL 9.7 draws a tree where no format is named.
	rows, err := db.Raw("EXPLAIN FORMAT=TRADITIONAL "+query, args...).Rows()
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		require.NoError(t, rows.Scan(into...))
		var step Step
		for i, name := range columns {
			switch name {
			case "table":
				step.Table = values[i].String
			case "type":
				step.Type = values[i].String
			case "key":
				step.Key = values[i].String
			case "rows":
				step.Rows, _ = strconv.ParseInt(values[i].String, 10, 64)
			}
		}
		steps = append(steps, step)
	}
	require.NoError(t, rows.Err())
	return steps
}
