package sqlstore

import (
	"strconv"
	"strings"
	"time"

	"dibs/internal/migrations"

	"gorm.io/gorm"
)

// Now is the time at the database's precision: UTC, milliseconds.
func Now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

const (
	// TimeLayout is the text of a UTC time in MySQL and SQLite.
	TimeLayout = "2006-01-02 15:04:05.000"
	// RowBytes is the usual length of a row in a statement, in bytes.
	RowBytes = 256
)

// RowsPerInsert is the row limit of one INSERT: well below
// MySQL's packet limit and SQLite's statement limit.
func RowsPerInsert(on *gorm.DB) int {
	if on.Name() == migrations.SQLite {
		return 500
	}
	return 2000
}

// Statement builds a multi-row INSERT. For each row call
// BeginRow, add its values in order, call EndRow. Numbers, times
// and plain text are inlined in the statement, at a third of a
// placeholder's cost. Any other text is an argument.
type Statement struct {
	sql  []byte
	Args []any // for SQL's placeholders
}

// NewStatement starts with head, which ends in VALUES. size is
// the expected length of the rows, in bytes.
func NewStatement(head string, size int) *Statement {
	s := &Statement{sql: make([]byte, 0, len(head)+size)}
	s.sql = append(s.sql, head...)
	return s
}

// SQL returns the text of the statement.
func (s *Statement) SQL() string { return string(s.sql) }

// BeginRow starts row i, counted from 0.
func (s *Statement) BeginRow(i int) {
	if i > 0 {
		s.sql = append(s.sql, ',')
	}
	s.sql = append(s.sql, '(')
}

// EndRow ends the row, which must have a value.
func (s *Statement) EndRow() { s.sql[len(s.sql)-1] = ')' } // replaces the last value's comma

// Int adds a number.
func (s *Statement) Int(n int64) {
	s.sql = append(strconv.AppendInt(s.sql, n, 10), ',')
}

// Time adds a time in UTC, in milliseconds.
func (s *Statement) Time(t time.Time) {
	s.sql = append(s.sql, '\'')
	s.sql = append(t.UTC().AppendFormat(s.sql, TimeLayout), '\'', ',')
}

// Text adds any text.
func (s *Statement) Text(v string) {
	if !IsPlain(v) {
		s.sql = append(s.sql, '?', ',')
		s.Args = append(s.Args, v)
		return
	}
	s.Quoted(v)
}

// Quoted adds text known to need no escaping.
func (s *Statement) Quoted(v string) {
	s.sql = append(append(append(s.sql, '\''), v...), '\'', ',')
}

// TextOrNull adds text; "" is NULL.
func (s *Statement) TextOrNull(v string) {
	if v == "" {
		s.sql = append(s.sql, "NULL,"...)
		return
	}
	s.Text(v)
}

// IntOrNull adds a number; nil is NULL.
func (s *Statement) IntOrNull(n *int64) {
	if n == nil {
		s.sql = append(s.sql, "NULL,"...)
		return
	}
	s.Int(*n)
}

// IsPlain reports whether all characters of a text are safe in
// any SQL parser, mode and character set.
func IsPlain(v string) bool {
	for i := range len(v) {
		c := v[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			continue
		}
		return false
	}
	return true
}

// TimeOrNull adds a time; nil is NULL.
func (s *Statement) TimeOrNull(t *time.Time) {
	if t == nil {
		s.sql = append(s.sql, "NULL,"...)
		return
	}
	s.Time(*t)
}

// Cut returns the first n characters of s, with U+FFFD for invalid UTF-8.
func Cut(s string, n int) string {
	runes := []rune(strings.ToValidUTF8(s, "\ufffd"))
	return string(runes[:min(n, len(runes))])
}
