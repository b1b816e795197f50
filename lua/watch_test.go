package lua_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
)

func TestWatchReadsManyCampaignsAtOnce(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		b.claim(want("ada", 3, ""))
		state, err := b.s.State(t.Context(), b.c.ID)
		require.NoError(t, err)
		refused := func(byCode map[string]int64) []lua.Answers {
			return []lua.Answers{{CampaignID: b.c.ID, Counts: byCode}}
		}
		require.NoError(t, b.s.CountAnswers(t.Context(), refused(map[string]int64{"sold_out": 2, "paused": 1})))
		require.NoError(t, b.s.CountAnswers(t.Context(), refused(map[string]int64{"sold_out": 3})))
		require.NoError(t, rdb.Set(t.Context(), b.s.KeysOf("text").State, "no hash", 0).Err())
		require.NoError(t, rdb.HSet(t.Context(), b.s.KeysOf("half").State, "total", 5, "generation", "0").Err())

		seen, err := b.s.Watch(t.Context(), []string{"none", b.c.ID, "text", "half"})
		require.NoError(t, err)
		require.ErrorIs(t, seen[0].Err, lua.ErrAbsent)
		require.NoError(t, seen[1].Err)
		seen[1].State.AsOf = state.AsOf
		require.Equal(t, state, seen[1].State, "as State reads it")
		require.Equal(t, map[string]int64{"sold_out": 5, "paused": 1}, seen[1].Answers)
		require.ErrorIs(t, seen[2].Err, lua.ErrDamaged)
		require.ErrorIs(t, seen[3].Err, lua.ErrDamaged)

		left, err := rdb.TTL(t.Context(), b.keys.Answers).Result()
		require.NoError(t, err)
		require.InDelta(t, 2*time.Minute, left, float64(10*time.Second), "counts expire")
	})
}

func TestWatchWhileOneOfSeveralServersIsAway(t *testing.T) {
	t.Parallel()
	addrs := testenv.RedisCluster(t, 2)
	scripts, err := lua.New(connect(t, "redis://"+strings.Join(addrs, ",")), lua.Options{Partitions: 8})
	require.NoError(t, err)
	ids := make([]string, 16)
	for i := range ids {
		ids[i] = fmt.Sprint("c", i)
	}
	_, err = scripts.Watch(t.Context(), ids)
	require.NoError(t, err)
	pause := redis.NewClient(&redis.Options{Addr: addrs[1]})
	t.Cleanup(func() { _ = pause.Close() })
	require.NoError(t, pause.Do(t.Context(), "CLIENT", "PAUSE", 30_000).Err())
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	seen, err := scripts.Watch(ctx, ids)
	require.NoError(t, err)
	requireOneAway(t, len(ids), func(i int) error { return seen[i].Err })

	ctx, cancel = context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	views := scripts.Shards(ctx, ids)
	requireOneAway(t, len(ids), func(i int) error { return views[i].Err })
}

// requireOneAway is for campaigns that neither of two servers holds, and of which one answers.
func requireOneAway(t *testing.T, campaigns int, errOf func(i int) error) {
	t.Helper()
	absent, away := 0, 0
	for i := range campaigns {
		switch {
		case errors.Is(errOf(i), lua.ErrAbsent):
			absent++
		case errOf(i) != nil:
			away++
		}
	}
	require.Positive(t, absent, "the other answers")
	require.Positive(t, away)
	require.Equal(t, campaigns, absent+away)
}

func TestWatchOfARedisThatIsAway(t *testing.T) {
	t.Parallel()
	scripts, err := lua.New(connect(t, "redis://127.0.0.1:1"), lua.Options{})
	require.NoError(t, err)
	_, err = scripts.Watch(t.Context(), []string{"c"})
	require.ErrorIs(t, err, lua.ErrUnavailable)
	require.ErrorIs(t, scripts.CountAnswers(t.Context(), []lua.Answers{{CampaignID: "c", Counts: map[string]int64{"paused": 1}}}), lua.ErrUnavailable)
}
