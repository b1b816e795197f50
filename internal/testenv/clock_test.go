package testenv_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

func TestClockOfRedisJumpsWhileItRuns(t *testing.T) {
	t.Parallel()
	clock, err := testenv.NewClock(t)
	if err != nil {
		t.Skip(err)
	}
	rdb := clock.Redis().Client()
	for _, off := range []time.Duration{0, 2 * time.Hour, -2 * time.Hour, 0} {
		clock.Set(off)
		now, err := rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(off), now, time.Minute)
	}
}
