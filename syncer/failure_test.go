package syncer

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

func TestFailureOf_SaysWhatCanBeDone(t *testing.T) {
	t.Parallel()
	my := func(number uint16) error { return fmt.Errorf("wrapped: %w", &mysql.MySQLError{Number: number}) }
	for _, c := range []struct {
		err  error
		want failure
	}{
		{nil, failureNone},
		{my(1213), failureClash}, {my(1205), failureClash},
		{my(1062), failureDuplicate},
		{my(1406), failureData}, {my(3819), failureData}, {my(4025), failureData}, {my(1153), failureData}, {mysql.ErrPktTooLarge, failureData},
		{my(1040), failureTransient}, {my(1146), failureTransient}, {my(1142), failureTransient}, {my(1836), failureTransient},
		{driver.ErrBadConn, failureTransient}, {mysql.ErrInvalidConn, failureTransient}, {io.EOF, failureTransient},
		{sql.ErrTxDone, failureTransient}, {context.DeadlineExceeded, failureTransient},
		{liteError(5), failureClash}, {liteError(517), failureClash}, {liteError(6), failureClash},
		{liteError(1555), failureDuplicate}, {liteError(2067), failureDuplicate},
		{liteError(275), failureData}, {liteError(18), failureData}, {liteError(13), failureTransient},
	} {
		require.Equal(t, c.want, failureOf(c.err), "%v", c.err)
	}
}

type liteError int

func (e liteError) Error() string { return fmt.Sprint("sqlite ", int(e)) }
func (e liteError) Code() int     { return int(e) }

func TestPersist_TriesAgainWhatMayHealAndNothingElse(t *testing.T) {
	t.Parallel()
	answer := errors.New("an answer")
	for _, c := range []struct {
		err   error
		tries uint
		want  int
	}{
		{&mysql.MySQLError{Number: 1213}, 3, 3}, {io.EOF, 2, 2}, {&mysql.MySQLError{Number: 1406}, 3, 1}, {final(answer), 3, 1},
	} {
		calls, notices := 0, 0
		err := persist(t.Context(), c.tries, func(error, failure, time.Duration) { notices++ }, func() error {
			calls++
			return c.err
		})
		require.Error(t, err)
		require.Equal(t, c.want, calls, "%v", c.err)
		require.Equal(t, c.want-1, notices)
	}
	require.Equal(t, answer, persist(t.Context(), 1, nil, func() error { return final(answer) }), "without the mark")

	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	require.ErrorIs(t, persist(ctx, 0, func(error, failure, time.Duration) {}, func() error { return io.EOF }), stopped)
}
