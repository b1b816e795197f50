package finance

import (
	"errors"

	"github.com/go-sql-driver/mysql"
	"gorm.io/gorm"
)

// failure is what can be done about an error of the database.
type failure int

const (
	failureNone      failure = iota
	failureTransient         // the server or the way to it: the same again may succeed
	failureClash             // lost against another transaction: the same again at once
	failureDuplicate         // an entry with that id is there
	failureData              // the data itself cannot be stored
)

// Errors of MySQL and MariaDB by what can be done about them. Entries are checked before, so few kinds of data are refused;
// whatever is not listed is taken for a trouble of the server, because parking a good credit would be worse.
var mysqlFailures = map[uint16]failure{
	1205: failureClash, // lock wait timeout
	1213: failureClash, // deadlock
	1020: failureClash, // record has changed since last read (MariaDB)
	1264: failureData,  // out of range: an account that overflows
	1366: failureData,  // wrong value for the character set
	1406: failureData,  // too long
	1690: failureData,  // out of range in an expression: an account that overflows
}

// SQLite's primary result codes.
const (
	sqliteBusy   = 5
	sqliteLocked = 6
	sqliteTooBig = 18
)

// failureOf tells what can be done about an error that gorm returned, with TranslateError on.
func failureOf(err error) failure {
	var lite interface{ Code() int }
	switch {
	case err == nil:
		return failureNone
	case errors.Is(err, gorm.ErrDuplicatedKey):
		return failureDuplicate
	case errors.Is(err, gorm.ErrCheckConstraintViolated), errors.Is(err, errOverflow):
		return failureData
	case errors.As(err, &lite):
		switch lite.Code() & 0xff {
		case sqliteBusy, sqliteLocked:
			return failureClash
		case sqliteTooBig:
			return failureData
		}
	}
	if my, is := errors.AsType[*mysql.MySQLError](err); is && mysqlFailures[my.Number] != failureNone {
		return mysqlFailures[my.Number]
	}
	return failureTransient
}
