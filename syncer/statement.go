package syncer

import (
	"dibs/migrations"
	"strconv"
	"strings"
	"time"
)

const (
	// timeLayout is how MySQL and SQLite keep a time, in UTC.
	timeLayout = "2006-01-02 15:04:05.000"
	// rowBytes is about what a row takes in a statement.
	rowBytes = 256
)

// rowsPerInsert bounds a statement well below the packet limit of MySQL and the statement limit of SQLite.
func rowsPerInsert(dialect string) int {
	if dialect == migrations.SQLite {
		return 500
	}
	return 2000
}

// statement builds a multi-row INSERT. Numbers, times and text of plain characters stand in the statement itself, which
// costs a third of what a placeholder costs; any other text is an argument.
type statement struct {
	sql  []byte
	args []any
}

func newStatement(head string, size int) *statement {
	s := &statement{sql: make([]byte, 0, len(head)+size)}
	s.sql = append(s.sql, head...)
	return s
}

func (s *statement) text() string { return string(s.sql) }

func (s *statement) open(i int) {
	if i > 0 {
		s.sql = append(s.sql, ',')
	}
	s.sql = append(s.sql, '(')
}

// close ends the row; each value has left a comma behind it.
func (s *statement) close() { s.sql[len(s.sql)-1] = ')' }

func (s *statement) int(n int64) {
	s.sql = append(strconv.AppendInt(s.sql, n, 10), ',')
}

func (s *statement) time(t time.Time) {
	s.sql = append(s.sql, '\'')
	s.sql = append(t.UTC().AppendFormat(s.sql, timeLayout), '\'', ',')
}

func (s *statement) string(v string) {
	if !isPlain(v) {
		s.sql = append(s.sql, '?', ',')
		s.args = append(s.args, v)
		return
	}
	s.quoted(v)
}

// quoted takes plain text only.
func (s *statement) quoted(v string) {
	s.sql = append(append(append(s.sql, '\''), v...), '\'', ',')
}

func (s *statement) stringOrNull(v string) {
	if v == "" {
		s.sql = append(s.sql, "NULL,"...)
		return
	}
	s.string(v)
}

func (s *statement) intOrNull(n *int64) {
	if n == nil {
		s.sql = append(s.sql, "NULL,"...)
		return
	}
	s.int(*n)
}

// isPlain tells whether text is of characters that mean nothing to any SQL parser, whatever its modes and character set.
func isPlain(v string) bool {
	for i := range len(v) {
		c := v[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			continue
		}
		return false
	}
	return true
}

func (s *statement) timeOrNull(t *time.Time) {
	if t == nil {
		s.sql = append(s.sql, "NULL,"...)
		return
	}
	s.time(*t)
}

// cut keeps at most n characters of valid UTF-8.
func cut(s string, n int) string {
	runes := []rune(strings.ToValidUTF8(s, "\ufffd"))
	return string(runes[:min(n, len(runes))])
}
