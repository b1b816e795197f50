package sqlstore

import (
	"database/sql"

	"gorm.io/gorm"
)

// SQL runs statements that are written in SQL, on the pool or in the transaction of a gorm.DB, with its context. A slice behind IN
// stands for its values. Rows that need no SQL are read and written by gorm's own calls.
type SQL struct{ db *gorm.DB }

// On makes an SQL.
func On(db *gorm.DB) SQL { return SQL{db} }

// Scan reads the rows of a query into a variable, a struct or a slice of either, by the names of the columns.
func (s SQL) Scan(into any, query string, args ...any) error {
	return s.db.Raw(query, args...).Scan(into).Error
}

// Row runs a query that has one row.
func (s SQL) Row(query string, args ...any) *sql.Row { return s.db.Raw(query, args...).Row() }

// Exec runs a statement and returns how many rows it changed.
func (s SQL) Exec(query string, args ...any) (changed int64, err error) {
	done := s.db.Exec(query, args...)
	return done.RowsAffected, done.Error
}

// Run is Exec for who does not ask how many rows were changed.
func (s SQL) Run(query string, args ...any) error {
	_, err := s.Exec(query, args...)
	return err
}
