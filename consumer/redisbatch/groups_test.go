package redisbatch_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
)

func TestEnsureGroup_LosesNothingAndMayBeCalledAgain(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, rdb redis.UniversalClient) {
		t.Parallel()
		ctx := t.Context()
		require.NoError(t, rdb.XAdd(ctx, &redis.XAddArgs{Stream: lua.StreamKey(0), Values: []any{"a", "1"}}).Err())
		require.NoError(t, ensureGroups(ctx, rdb, 2, "syncer", "finance"))
		read := &redis.XReadGroupArgs{Group: "finance", Consumer: "x", Streams: []string{lua.StreamKey(0), ">"}, Block: -1}
		got, err := rdb.XReadGroup(ctx, read).Result()
		require.NoError(t, err)
		require.Len(t, got[0].Messages, 1, "what was there before the group")
		require.NoError(t, ensureGroups(ctx, rdb, 2, "syncer", "finance"))
		_, err = rdb.XReadGroup(ctx, read).Result()
		require.ErrorIs(t, err, redis.Nil, "a second call moves nothing")
		groups, err := rdb.XInfoGroups(ctx, lua.StreamKey(1)).Result()
		require.NoError(t, err)
		require.Len(t, groups, 2)
		require.NoError(t, rdb.Set(ctx, lua.StreamKey(1), "x", 0).Err())
		require.ErrorContains(t, ensureGroups(ctx, rdb, 2, "syncer"), "WRONGTYPE")
	}
	t.Run("redis", func(t *testing.T) { test(t, testenv.Redis(t).Client()) })
	t.Run("embedded", func(t *testing.T) { test(t, embedded(t)) })
}
