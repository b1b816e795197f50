package softstate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/softstate"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

func TestWatchReadsManyCampaignsAtOnce(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, s *softstate.Store, scripts *lua.Scripts, rdb redis.UniversalClient) {
		c := &models.Campaign{ID: "c", Kind: models.KindCoupon, Status: models.StatusOpen, Total: 10, TimeZone: "UTC", Version: 1, Epoch: 1}
		_, err := scripts.Load(t.Context(), c)
		require.NoError(t, err)
		meta, err := scripts.MetaOf(c)
		require.NoError(t, err)
		_, _, err = scripts.Claim(t.Context(), meta, []lua.ClaimRequest{{ID: uuid.Must(uuid.NewV7()), UserID: "ada", Quantity: 3}})
		require.NoError(t, err)
		state, err := scripts.State(t.Context(), c.ID)
		require.NoError(t, err)
		refused := func(byCode map[string]int64) []softstate.Answers {
			return []softstate.Answers{{CampaignID: c.ID, Counts: byCode}}
		}
		require.NoError(t, s.CountAnswers(t.Context(), refused(map[string]int64{"sold_out": 2, "paused": 1})))
		require.NoError(t, s.CountAnswers(t.Context(), refused(map[string]int64{"sold_out": 3})))
		require.NoError(t, rdb.Set(t.Context(), scripts.KeysOf("text").State, "no hash", 0).Err())
		require.NoError(t, rdb.HSet(t.Context(), scripts.KeysOf("half").State, "total", 5, "generation", "0").Err())

		seen, err := s.Watch(t.Context(), []string{"none", c.ID, "text", "half"})
		require.NoError(t, err)
		require.ErrorIs(t, seen[0].Err, lua.ErrAbsent)
		require.NoError(t, seen[1].Err)
		seen[1].State.AsOf = state.AsOf
		require.Equal(t, state, seen[1].State, "as State reads it")
		require.Equal(t, map[string]int64{"sold_out": 5, "paused": 1}, seen[1].Answers)
		require.ErrorIs(t, seen[2].Err, lua.ErrDamaged)
		require.ErrorIs(t, seen[3].Err, lua.ErrDamaged)

		left, err := rdb.TTL(t.Context(), scripts.KeysOf(c.ID).State+":answers").Result()
		require.NoError(t, err)
		require.InDelta(t, 2*time.Minute, left, float64(10*time.Second), "counts expire")
	})
}

func TestWatchWhileOneOfSeveralServersIsAway(t *testing.T) {
	t.Parallel()
	addrs := testenv.RedisCluster(t, 2)
	s, scripts, _ := open(t, "redis://"+strings.Join(addrs, ","), 8)
	ids := make([]string, 16)
	for i := range ids {
		ids[i] = fmt.Sprint("c", i)
	}
	_, err := s.Watch(t.Context(), ids)
	require.NoError(t, err)
	pause := redis.NewClient(&redis.Options{Addr: addrs[1]})
	t.Cleanup(func() { _ = pause.Close() })
	require.NoError(t, pause.Do(t.Context(), "CLIENT", "PAUSE", 30_000).Err())
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	seen, err := s.Watch(ctx, ids)
	require.NoError(t, err)
	requireOneAway(t, len(ids), func(i int) error { return seen[i].Err })

	ctx, cancel = context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	views := scripts.Shards(ctx, ids)
	requireOneAway(t, len(ids), func(i int) error { return views[i].Err })
}

// requireOneAway is for campaigns that neither of two servers
// holds, and of which one answers.
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
	s, _, _ := open(t, "redis://127.0.0.1:1", 1)
	_, err := s.Watch(t.Context(), []string{"c"})
	require.Error(t, err)
	require.Error(t, s.CountAnswers(t.Context(), []softstate.Answers{{CampaignID: "c", Counts: map[string]int64{"paused": 1}}}))
}
