package sleep_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/sleep"
)

func TestFor_WaitsAsLongAsItIsAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		require.NoError(t, sleep.For(t.Context(), time.Hour))
		require.Equal(t, time.Hour, time.Since(started))
	})
}

func TestFor_EndsWithItsContextAndSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		started := time.Now()
		time.AfterFunc(time.Minute, func() { cancel(stop) })
		require.ErrorIs(t, sleep.For(ctx, time.Hour), stop)
		require.Equal(t, time.Minute, time.Since(started))
	})
}
