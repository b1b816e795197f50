package sqlstore_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"dibs/internal/sqlstore"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

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
