package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"testing"

	"dibs/internal/sqlstore"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func TestFailureOf_SaysWhatCanBeDone(t *testing.T) {
	t.Parallel()
	my := func(number uint16) error { return fmt.Errorf("wrapped: %w", &mysql.MySQLError{Number: number}) }
	for _, c := range []struct {
		err  error
		want sqlstore.Failure
	}{
		{nil, sqlstore.FailureNone},
		{my(1213), sqlstore.FailureClash}, {my(1205), sqlstore.FailureClash},
		{my(1062), sqlstore.FailureDuplicate},
		{my(1406), sqlstore.FailureData}, {my(3819), sqlstore.FailureData}, {my(4025), sqlstore.FailureData}, {my(1153), sqlstore.FailureData}, {mysql.ErrPktTooLarge, sqlstore.FailureData},
		{gorm.ErrDuplicatedKey, sqlstore.FailureDuplicate}, {gorm.ErrCheckConstraintViolated, sqlstore.FailureData},
		{my(1040), sqlstore.FailureTransient}, {my(1146), sqlstore.FailureTransient}, {my(1142), sqlstore.FailureTransient}, {my(1836), sqlstore.FailureTransient},
		{driver.ErrBadConn, sqlstore.FailureTransient}, {mysql.ErrInvalidConn, sqlstore.FailureTransient}, {io.EOF, sqlstore.FailureTransient},
		{sql.ErrTxDone, sqlstore.FailureTransient}, {context.DeadlineExceeded, sqlstore.FailureTransient},
		{liteError(5), sqlstore.FailureClash}, {liteError(517), sqlstore.FailureClash}, {liteError(6), sqlstore.FailureClash},
		{liteError(1555), sqlstore.FailureDuplicate}, {liteError(2067), sqlstore.FailureDuplicate},
		{liteError(275), sqlstore.FailureData}, {liteError(18), sqlstore.FailureData}, {liteError(13), sqlstore.FailureTransient},
	} {
		require.Equal(t, c.want, sqlstore.FailureOf(c.err), "%v", c.err)
	}
}

type liteError int

func (e liteError) Error() string { return fmt.Sprint("sqlite ", int(e)) }
func (e liteError) Code() int     { return int(e) }
