package sqlstore

import (
	"errors"

	"github.com/go-sql-driver/mysql"
	"gorm.io/gorm"
)

// Failure says how to handle an error of the database.
type Failure int

// The kinds of Failure.
const (
	FailureNone Failure = iota
	// FailureTransient: a fault of the server or network: the same statement
	// may succeed later.
	FailureTransient
	// FailureClash: a conflict with another transaction: the same statement may
	// succeed at once.
	FailureClash
	FailureDuplicate // a row with that key exists
	FailureData      // the data itself cannot be stored
)

// mysqlFailures classifies errors of MySQL and MariaDB. An unlisted error
// counts as a fault of the server or its set-up, such as a missing grant or a
// full disk. It is retried, because parking good claims would be worse.
var mysqlFailures = map[uint16]Failure{
	lockWaitNumber: FailureClash,

	1213: FailureClash, // deadlock
	1020: FailureClash, // record has changed (MariaDB, innodb_snapshot_isolation)

	1062: FailureDuplicate,

	1048:                 FailureData, // NULL in a NOT NULL column
	packetTooLargeNumber: FailureData, // half of it may fit
	1264:                 FailureData, // out of range
	1265:                 FailureData, // truncated
	1292:                 FailureData, // wrong value
	1366:                 FailureData, // wrong value for the character set
	1367:                 FailureData, // illegal value
	1406:                 FailureData, // too long
	1411:                 FailureData, // wrong value for a function
	1441:                 FailureData, // date out of range
	1690:                 FailureData, // number out of range in an expression
	3819:                 FailureData, // check violated, MySQL
	4025:                 FailureData, // check violated, MariaDB
}

const (
	lockWaitNumber       = 1205 // lock wait timeout
	packetTooLargeNumber = 1153
)

// SQLite's primary result codes, and the two extended codes of duplicates.
const (
	sqliteBusy             = 5
	sqliteLocked           = 6
	sqliteTooBig           = 18
	sqliteConstraint       = 19
	sqliteMismatch         = 20
	sqliteConstraintPK     = 1555
	sqliteConstraintUnique = 2067
)

// FailureOf classifies an error of a statement or a transaction.
func FailureOf(err error) Failure {
	var my *mysql.MySQLError
	var lite interface{ Code() int }
	switch {
	case err == nil:
		return FailureNone
	case errors.Is(err, gorm.ErrDuplicatedKey): // gorm drops the number
		return FailureDuplicate
	case errors.Is(err, mysql.ErrPktTooLarge), errors.Is(err, gorm.ErrCheckConstraintViolated):
		return FailureData
	case errors.As(err, &my):
		return mysqlFailure(my.Number)
	case errors.As(err, &lite):
		return sqliteFailure(lite.Code())
	}
	return FailureTransient
}

// IsLockWait reports whether a statement timed out waiting for
// another transaction's lock. It is a FailureClash.
func IsLockWait(err error) bool {
	my, is := errors.AsType[*mysql.MySQLError](err)
	return is && my.Number == lockWaitNumber
}

func mysqlFailure(number uint16) Failure {
	if f, listed := mysqlFailures[number]; listed {
		return f
	}
	return FailureTransient
}

func sqliteFailure(code int) Failure {
	switch {
	case code == sqliteConstraintPK || code == sqliteConstraintUnique:
		return FailureDuplicate
	case code&0xff == sqliteBusy || code&0xff == sqliteLocked:
		return FailureClash
	case code&0xff == sqliteConstraint || code&0xff == sqliteTooBig || code&0xff == sqliteMismatch:
		return FailureData
	}
	return FailureTransient
}

// IsPacketTooLarge reports whether a statement exceeded the server's limit.
// It is a FailureData, and the server closes the connection.
func IsPacketTooLarge(err error) bool {
	my, is := errors.AsType[*mysql.MySQLError](err)
	return errors.Is(err, mysql.ErrPktTooLarge) || is && my.Number == packetTooLargeNumber
}
