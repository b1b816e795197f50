package consumer_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer"
	"dibs/lua"
)

// role is common to tests of a reader of two partitions. Its keys are
// the real ones, so each needs its own Redis.
type role struct {
	rdb redis.UniversalClient
	reg *prometheus.Registry
}

func (r *role) claim(t *testing.T, partition, n int) {
	t.Helper()
	payload := fmt.Sprintf(benchPayload, n, n, n+1)
	require.NoError(t, r.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(partition), Values: []any{
		"_watermill_message_uuid", claimID(n), "metadata", "", "payload", payload}}).Err())
}

func (r *role) pending(t *testing.T, group string) (n int64) {
	t.Helper()
	for p := range 2 {
		pending, err := r.rdb.XPending(context.Background(), lua.StreamKey(p), group).Result()
		require.NoError(t, err)
		n += pending.Count
	}
	return n
}

func TestCheckPartitions_RefusesToLeaveAStreamUnread(t *testing.T) {
	t.Parallel()
	onBothAlone(t, func(t *testing.T, rdb redis.UniversalClient) {
		require.NoError(t, consumer.CheckPartitions(t.Context(), rdb, 1))
		require.NoError(t, ensureGroups(t.Context(), rdb, 3, "finance"))
		require.NoError(t, consumer.CheckPartitions(t.Context(), rdb, 1), "no event was ever in them")
		require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: lua.StreamKey(2), Values: []any{"payload", "1"}}).Err())
		require.NoError(t, consumer.CheckPartitions(t.Context(), rdb, 3))
		err := consumer.CheckPartitions(t.Context(), rdb, 2)
		require.ErrorIs(t, err, consumer.ErrConfig)
		require.ErrorContains(t, err, "Partitions is 2, but there are events in dibs:{p2}:claims")
	})
}
