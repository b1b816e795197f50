package sqlstore

import (
	"strconv"
	"strings"
	"time"

	"dibs/migrations"
)

const (
	// timeLayout is how MySQL and SQLite keep a time, in UTC.
	TimeLayout = "2006-01-02 15:04:05.000"
	// rowBytes is about what a row takes in a statement.
	RowBytes = 256
)

// rowsPerInsert bounds a statement well below the packet limit of MySQL and the statement limit of SQLite.
func RowsPerInsert(dialect string) int {
	if dialect == migrations.SQLite {
		return 500
	}
	return 2000
}

// statement builds a multi-row INSERT. Numbers, times and text of plain characters stand in the statement itself, which
// costs a third of what a placeholder costs; any other text is an argument.
type Statement struct {
	sql  []byte
	Args []any
}

func NewStatement(head string, size int) *Statement {
	s := &Statement{sql: make([]byte, 0, len(head)+size)}
	s.sql = append(s.sql, head...)
	return s
}

func (s *Statement) SQL() string { return string(s.sql) }

func (s *Statement) BeginRow(i int) {
	if i > 0 {
		s.sql = append(s.sql, ',')
	}
	s.sql = append(s.sql, '(')
}

// close ends the row; each value has left a comma behind it.
func (s *Statement) EndRow() { s.sql[len(s.sql)-1] = ')' }

func (s *Statement) Int(n int64) {
	s.sql = append(strconv.AppendInt(s.sql, n, 10), ',')
}

func (s *Statement) Time(t time.Time) {
	s.sql = append(s.sql, '\'')
	s.sql = append(t.UTC().AppendFormat(s.sql, TimeLayout), '\'', ',')
}

func (s *Statement) Text(v string) {
	if !IsPlain(v) {
		s.sql = append(s.sql, '?', ',')
		s.Args = append(s.Args, v)
		return
	}
	s.Quoted(v)
}

// quoted takes plain text only.
func (s *Statement) Quoted(v string) {
	s.sql = append(append(append(s.sql, '\''), v...), '\'', ',')
}

func (s *Statement) TextOrNull(v string) {
	if v == "" {
		s.sql = append(s.sql, "NULL,"...)
		return
	}
	s.Text(v)
}

func (s *Statement) IntOrNull(n *int64) {
	if n == nil {
		s.sql = append(s.sql, "NULL,"...)
		return
	}
	s.Int(*n)
}

// isPlain tells whether text is of characters that mean nothing to any SQL parser, whatever its modes and character set.
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

func (s *Statement) TimeOrNull(t *time.Time) {
	if t == nil {
		s.sql = append(s.sql, "NULL,"...)
		return
	}
	s.Time(*t)
}

// cut keeps at most n characters of valid UTF-8.
func Cut(s string, n int) string {
	runes := []rune(strings.ToValidUTF8(s, "\ufffd"))
	return string(runes[:min(n, len(runes))])
}
