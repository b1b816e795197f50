package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
)

func exec(ctx context.Context, tx *gorm.DB, query string) error {
	_, err := sqlstore.Exec(ctx, tx, query)
	return err
}

func totalOf(t *testing.T, db *gorm.DB) (total int64) {
	t.Helper()
	require.NoError(t, db.Raw("SELECT total FROM campaigns").Scan(&total).Error)
	return total
}

// Otherwise reads of one snapshot could contradict each other.
func TestInSnapshot_SeesOneMoment(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenServer(t)
	syncertest.AddCampaign(t, db, "c", 1)
	var first, second int64
	require.NoError(t, sqlstore.InSnapshot(t.Context(), db, func(tx *gorm.DB) error {
		read := "SELECT total FROM campaigns"
		require.NoError(t, tx.Raw(read).Row().Scan(&first))
		require.NoError(t, db.Exec("UPDATE lots SET total = 2").Error)
		return tx.Raw(read).Row().Scan(&second)
	}))
	require.Equal(t, []int64{1, 1, 2}, []int64{first, second, totalOf(t, db)})

	err := sqlstore.InSnapshot(t.Context(), db, func(tx *gorm.DB) error { return exec(t.Context(), tx, "UPDATE lots SET total = 3") })
	require.ErrorContains(t, err, "1792", "read-only")
}

func TestInTxBrief_WaitsASecondForALockAndLeavesTheConnectionAsItWas(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: testenv.Database(t).DSN, Conns: 2})
	syncertest.AddCampaign(t, db, "c", 1)
	stranger := db.Begin()
	require.NoError(t, stranger.Exec("UPDATE lots SET total = 2").Error)
	started := time.Now()
	err := sqlstore.InTxBrief(t.Context(), db, func(tx *gorm.DB) error { return exec(t.Context(), tx, "UPDATE lots SET total = 3") })
	require.True(t, sqlstore.IsLockWait(err), "%v", err)
	require.Less(t, time.Since(started), 8*time.Second)
	var wait int
	// on the one free connection
	require.NoError(t, db.Raw("SELECT @@innodb_lock_wait_timeout").Scan(&wait).Error)
	require.Equal(t, 10, wait)
	require.NoError(t, stranger.Commit().Error)
	require.NoError(t, sqlstore.InTxBrief(t.Context(), db, func(tx *gorm.DB) error { return exec(t.Context(), tx, "UPDATE lots SET total = 3") }))
	require.EqualValues(t, 3, totalOf(t, db))
}

func TestRetry_TriesAgainWhatMayHealAndNothingElse(t *testing.T) {
	t.Parallel()
	answer := errors.New("an answer")
	for _, c := range []struct {
		err  error
		want int
	}{
		{&mysql.MySQLError{Number: 1213}, 5}, {io.EOF, 5}, {&mysql.MySQLError{Number: 1406}, 1}, {sqlstore.Final(answer), 1},
	} {
		calls := 0
		err := sqlstore.Retry(t.Context(), func() error {
			calls++
			return c.err
		})
		require.Error(t, err)
		require.Equal(t, c.want, calls, "%v", c.err)
	}
	require.Equal(t, answer, sqlstore.Retry(t.Context(), func() error { return sqlstore.Final(answer) }), "without the mark")

	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	require.ErrorIs(t, sqlstore.RetryForever(ctx, func(error, sqlstore.Failure, time.Duration) {}, func() error { return io.EOF }), stopped)
}

// A longer wait would delay recovery after MySQL returns.
func TestRetryForever_WaitsLessThanASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries, longest := 0, time.Duration(0)
		require.NoError(t, sqlstore.RetryForever(t.Context(), func(_ error, _ sqlstore.Failure, wait time.Duration) { longest = max(longest, wait) }, func() error {
			if tries++; tries < 200 {
				return io.EOF
			}
			return nil
		}))
		require.Greater(t, longest, 500*time.Millisecond, "it is not hammered either")
		require.Less(t, longest, time.Second)
	})
}

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
