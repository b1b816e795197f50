package sqlstore

import (
	"strconv"
	"strings"
	"time"

	"dibs/internal/migrations"

	"gorm.io/gorm"
)

// Now is the time as the database holds it: UTC, in milliseconds.
func Now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

const (
	// TimeLayout is the text of a time, in UTC, in MySQL and SQLite.
	TimeLayout = "2006-01-02 15:04:05.000"
	// RowBytes is the usual length of a row in a statement, in bytes.
	RowBytes = 256
)

// RowsPerInsert is the most rows of one INSERT: well below the packet limit of
// MySQL and the statement limit of SQLite.
func RowsPerInsert(on *gorm.DB) int {
	if on.Name() == migrations.SQLite {
		return 500
	}
	return 2000
}

// Statement builds a multi-row INSERT: for each row BeginRow, its values in
// order, EndRow. Numbers, times and text of plain characters stand in the
// statement itself, which costs a third of what a placeholder costs; any other
// text is an argument.
type Statement struct {
	sql  []byte
	Args []any // for the placeholders of SQL
}

// NewStatement begins with head, which ends in VALUES. size is the expected
// length of the rows, in bytes.
func NewStatement(head string, size int) *Statement {
	s := &Statement{sql: make([]byte, 0, len(head)+size)}
	s.sql = append(s.sql, head...)
	return s
}

// SQL is the text of the statement.
func (s *Statement) SQL() string { return string(s.sql) }

// BeginRow begins row i, counted from 0.
func (s *Statement) BeginRow(i int) {
	if i > 0 {
		s.sql = append(s.sql, ',')
	}
	s.sql = append(s.sql, '(')
}

// EndRow ends the row, which must have a value.
func (s *Statement) EndRow() { s.sql[len(s.sql)-1] = ')' } // in place of the last value's comma

// Int adds a number.
func (s *Statement) Int(n int64) {
	s.sql = append(strconv.AppendInt(s.sql, n, 10), ',')
}

// Time adds a time, in UTC and milliseconds.
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

// Quoted adds text that is known to need no escaping.
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

// IsPlain reports whether text is of characters that mean nothing to any SQL
// parser, whatever its modes and character set.
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

// Cut returns the first n characters of s, with U+FFFD in place of what is not
// UTF-8.
func Cut(s string, n int) string {
	runes := []rune(strings.ToValidUTF8(s, "\ufffd"))
	return string(runes[:min(n, len(runes))])
}
