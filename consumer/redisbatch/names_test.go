package redisbatch_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/consumer/redisbatch"
	"dibs/internal/testenv"
	"dibs/lua"
)

// A name with an entry stays, as the entry would be removed with it.
func TestNames_LeftBehindGoUnlessTheyHaveEntries(t *testing.T) {
	t.Parallel()
	rdb := testenv.Redis(t).Client()
	stream := lua.StreamKey(0)
	require.NoError(t, rdb.XGroupCreateMkStream(t.Context(), stream, "audit", "0").Err())
	require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: []string{"payload", "x"}}).Err())
	for _, name := range []string{"busy", "idle", "me"} {
		require.NoError(t, rdb.XGroupCreateConsumer(t.Context(), stream, "audit", name).Err())
	}
	require.NoError(t, rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "audit", Consumer: "busy", Streams: []string{stream, ">"}}).Err())
	left := func() (names []string) {
		all, err := rdb.XInfoConsumers(t.Context(), stream, "audit").Result()
		require.NoError(t, err)
		for i := range all {
			names = append(names, all[i].Name)
		}
		return names
	}
	redisbatch.DropNames(t.Context(), rdb, stream, "audit", "me", time.Hour)
	require.Len(t, left(), 3, "they were there a moment ago")
	require.Eventually(t, func() bool {
		redisbatch.DropNames(t.Context(), rdb, stream, "audit", "me", time.Millisecond)
		return len(left()) == 2
	}, patience, 5*time.Millisecond)
	require.ElementsMatch(t, []string{"busy", "me"}, left())
}
