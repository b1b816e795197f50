package sqlstore

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

func TestRetry_TriesAgainWhatMayHealAndNothingElse(t *testing.T) {
	t.Parallel()
	answer := errors.New("an answer")
	for _, c := range []struct {
		err   error
		tries uint
		want  int
	}{
		{&mysql.MySQLError{Number: 1213}, 3, 3}, {io.EOF, 2, 2}, {&mysql.MySQLError{Number: 1406}, 3, 1}, {Final(answer), 3, 1},
	} {
		calls, notices := 0, 0
		err := retry(t.Context(), c.tries, func(error, Failure, time.Duration) { notices++ }, func() error {
			calls++
			return c.err
		})
		require.Error(t, err)
		require.Equal(t, c.want, calls, "%v", c.err)
		require.Equal(t, c.want-1, notices)
	}
	require.Equal(t, answer, retry(t.Context(), 1, nil, func() error { return Final(answer) }), "without the mark")

	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	require.ErrorIs(t, retry(ctx, 0, func(error, Failure, time.Duration) {}, func() error { return io.EOF }), stopped)
}

// A longer wait would delay recovery after MySQL returns.
func TestRetryForever_WaitsLessThanASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries, longest := 0, time.Duration(0)
		require.NoError(t, RetryForever(t.Context(), func(_ error, _ Failure, wait time.Duration) { longest = max(longest, wait) }, func() error {
			if tries++; tries < 200 {
				return io.EOF
			}
			return nil
		}))
		require.Greater(t, longest, 500*time.Millisecond, "it is not hammered either")
		require.Less(t, longest, time.Second)
	})
}
