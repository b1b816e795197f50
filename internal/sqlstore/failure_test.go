package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

func TestFailureOf_SaysWhatCanBeDone(t *testing.T) {
	t.Parallel()
	my := func(number uint16) error { return fmt.Errorf("wrapped: %w", &mysql.MySQLError{Number: number}) }
	for _, c := range []struct {
		err  error
		want Failure
	}{
		{nil, FailureNone},
		{my(1213), FailureClash}, {my(1205), FailureClash},
		{my(1062), FailureDuplicate},
		{my(1406), FailureData}, {my(3819), FailureData}, {my(4025), FailureData}, {my(1153), FailureData}, {mysql.ErrPktTooLarge, FailureData},
		{gorm.ErrDuplicatedKey, FailureDuplicate}, {gorm.ErrCheckConstraintViolated, FailureData},
		{my(1040), FailureTransient}, {my(1146), FailureTransient}, {my(1142), FailureTransient}, {my(1836), FailureTransient},
		{driver.ErrBadConn, FailureTransient}, {mysql.ErrInvalidConn, FailureTransient}, {io.EOF, FailureTransient},
		{sql.ErrTxDone, FailureTransient}, {context.DeadlineExceeded, FailureTransient},
		{liteError(5), FailureClash}, {liteError(517), FailureClash}, {liteError(6), FailureClash},
		{liteError(1555), FailureDuplicate}, {liteError(2067), FailureDuplicate},
		{liteError(275), FailureData}, {liteError(18), FailureData}, {liteError(13), FailureTransient},
	} {
		require.Equal(t, c.want, FailureOf(c.err), "%v", c.err)
	}
}

type liteError int

func (e liteError) Error() string { return fmt.Sprint("sqlite ", int(e)) }
func (e liteError) Code() int     { return int(e) }
