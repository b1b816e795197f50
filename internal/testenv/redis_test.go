package testenv_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

func TestPausedRedisEndsWithItsTest(t *testing.T) {
	t.Parallel()
	var c *redis.Client
	t.Run("paused at the end", func(t *testing.T) {
		r := testenv.Redis(t)
		c = redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1})
		require.NoError(t, c.Ping(t.Context()).Err())
		r.Pause()
	})
	require.Error(t, c.Ping(t.Context()).Err())
	require.NoError(t, c.Close())
}
