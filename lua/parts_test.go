package lua_test

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
)

func TestConsumersOfAGroup(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		none, err := b.s.Consumers(t.Context(), 0, "syncer")
		require.NoError(t, err)
		require.Empty(t, none, "there is no group")
		require.NoError(t, b.s.NewGroup(t.Context(), 0, "syncer"))
		b.claim(want("ada", 1, ""), want("bob", 1, ""))
		_, err = rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{
			Group: "syncer", Consumer: "one", Streams: []string{lua.StreamKey(0), ">"}, Count: 1,
		}).Result()
		require.NoError(t, err)
		readers, err := b.s.Consumers(t.Context(), 0, "syncer")
		require.NoError(t, err)
		require.Len(t, readers, 1)
		require.Equal(t, "one", readers[0].Name)
		require.EqualValues(t, 1, readers[0].Pending)
	})
}

func TestHealthOfARedis(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	rdb := server.Client()
	scripts, err := lua.New(rdb, lua.Options{})
	require.NoError(t, err)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "512mb").Err())
	h, err := scripts.Health(t.Context())
	require.NoError(t, err)
	require.Positive(t, h.Took)
	require.Positive(t, h.UsedBytes)
	require.EqualValues(t, 512<<20, h.LimitBytes)

	embedded, err := lua.New(connect(t, "redis://"+miniredis.RunT(t).Addr()), lua.Options{})
	require.NoError(t, err)
	h, err = embedded.Health(t.Context())
	require.NoError(t, err, "it does not say how much it uses")
	require.Zero(t, h.UsedBytes)

	away, err := lua.New(connect(t, "redis://127.0.0.1:1"), lua.Options{})
	require.NoError(t, err)
	_, err = away.Health(t.Context())
	require.ErrorIs(t, err, lua.ErrUnavailable)
}
