package redisconn_test

import (
	"testing"
	"time"

	"dibs/internal/redisconn"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Keys with an expiry must expire, leases among them.
func TestAnEmbeddedRedisForgetsWhatHasExpired(t *testing.T) {
	t.Parallel()
	server, end, err := redisconn.Embed()
	require.NoError(t, err)
	defer end()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	require.NoError(t, rdb.Set(t.Context(), "lease", "x", 50*time.Millisecond).Err())
	require.NoError(t, rdb.Set(t.Context(), "stock", "x", 0).Err())
	require.Eventually(t, func() bool { return rdb.Exists(t.Context(), "lease").Val() == 0 }, time.Minute, time.Millisecond)
	require.EqualValues(t, 1, rdb.Exists(t.Context(), "stock").Val())
}
