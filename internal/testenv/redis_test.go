package testenv_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

func TestKilledRedisKeepsWhatItAppended(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t, "appendonly yes")
	ctx := t.Context()
	require.NoError(t, r.Client().Set(ctx, "k", "v", 0).Err())
	before := r.Dump(ctx)

	r.Kill()
	require.Error(t, r.Client().Ping(ctx).Err())
	r.Start()

	require.Equal(t, before, r.Dump(ctx))
	require.Len(t, before, 1)
}

func TestKilledRedisWithoutAppendOnlyForgets(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	require.NoError(t, r.Client().Set(t.Context(), "k", "v", 0).Err())
	r.Kill()
	r.Start()
	require.Empty(t, r.Dump(t.Context()))
}

func TestStoppedRedisComesBack(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t, "appendonly yes", "appendfsync always")
	ctx := t.Context()
	require.NoError(t, r.Client().XAdd(ctx, &redis.XAddArgs{Stream: "s", Values: []string{"a", "b"}}).Err())
	before := r.Dump(ctx)
	r.Stop()
	r.Start()
	require.Equal(t, before, r.Dump(ctx))
}

func TestDumpSeesEveryKindOfWrite(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	ctx := t.Context()
	c := r.Client()
	require.NoError(t, c.HSet(ctx, "h", "f", "1").Err())
	require.NoError(t, c.Set(ctx, "k", "v", 0).Err())

	writes := []struct {
		name  string
		write func() error
	}{
		{"a new field", func() error { return c.HSet(ctx, "h", "g", "1").Err() }},
		{"a new expiry", func() error { return c.Expire(ctx, "k", time.Hour).Err() }},
		{"a new key", func() error { return c.Set(ctx, "k2", "v", 0).Err() }},
		{"a gone key", func() error { return c.Del(ctx, "k").Err() }},
	}
	for _, w := range writes {
		before := r.Dump(ctx)
		require.Equal(t, before, r.Dump(ctx), "a dump changes nothing")
		require.NoError(t, w.write())
		require.NotEqual(t, before, r.Dump(ctx), w.name)
	}
}

func TestDumpReadsMoreKeysThanOneScan(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	const keys = 3000
	_, err := r.Client().Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range keys {
			p.Set(t.Context(), time.Duration(i).String(), i, 0)
		}
		return nil
	})
	require.NoError(t, err)
	require.Len(t, r.Dump(t.Context()), keys)
}

func TestPausedRedisHoldsConnectionsAndAnswersAfterResume(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	c := r.Client()
	require.NoError(t, c.Ping(t.Context()).Err())

	r.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Ping(ctx).Err(), os.ErrDeadlineExceeded)

	r.Resume()
	require.NoError(t, c.Ping(t.Context()).Err())
}

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

func TestSharedRedisIsOne(t *testing.T) {
	t.Parallel()
	one, again := testenv.SharedRedis(t), testenv.SharedRedis(t)
	require.Equal(t, one.URL(), again.URL())
	require.NotEqual(t, testenv.SharedRedis(t).Addr(), testenv.Redis(t).Addr())
}

func TestConfLinesOverrideTheDefaults(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t, "maxmemory 3mb", "maxmemory-policy allkeys-lru")
	got, err := r.Client().ConfigGet(t.Context(), "maxmemory*").Result()
	require.NoError(t, err)
	require.Equal(t, "3145728", got["maxmemory"])
	require.Equal(t, "allkeys-lru", got["maxmemory-policy"])
}

func TestClusterServesAllSlots(t *testing.T) {
	t.Parallel()
	addrs := testenv.RedisCluster(t, 3)
	require.Len(t, addrs, 3)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs[:1]})
	defer func() { require.NoError(t, c.Close()) }()

	covered := map[int64]bool{}
	shards, err := c.ClusterShards(t.Context()).Result()
	require.NoError(t, err)
	for _, shard := range shards {
		for _, r := range shard.Slots {
			for slot := r.Start; slot <= r.End; slot++ {
				covered[slot] = true
			}
		}
	}
	require.Len(t, covered, 16384)
	for _, key := range []string{"{a}", "{b}", "{c}", "{d}", "{e}", "{f}"} { // spread over the nodes
		require.NoError(t, c.Set(t.Context(), key, "v", 0).Err())
	}
	require.ErrorContains(t, c.MSet(t.Context(), "{a}", 1, "{b}", 2).Err(), "slot", "a real cluster refuses keys of two slots")
}

func TestProxyCutsAndRestores(t *testing.T) {
	t.Parallel()
	r := testenv.SharedRedis(t)
	p := testenv.Proxy(t, r.Addr())
	c := redis.NewClient(&redis.Options{Addr: p.Listen, MaxRetries: -1})
	defer func() { require.NoError(t, c.Close()) }()

	require.NoError(t, c.Ping(t.Context()).Err())
	p.Stop()
	require.Error(t, c.Ping(t.Context()).Err())
	require.NoError(t, p.Start())
	require.NoError(t, c.Ping(t.Context()).Err())
}
