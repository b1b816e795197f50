package lua_test

import (
	"context"
	"errors"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

func TestTogether_EachHasItsOwnOutcome(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		cs := []models.Campaign{*b.c, *b.c, *b.c}
		cs[0].ID += "a"
		cs[1].ID += "b"
		require.NoError(t, rdb.ScriptFlush(t.Context()).Err(), "a redis that forgot the scripts is told them")
		fenced, errs := b.s.Fence(t.Context(), "one", lua.FenceAway, []string{cs[0].ID, cs[1].ID, cs[2].ID})
		require.NoError(t, errors.Join(errs...))
		require.Equal(t, []lua.Held{lua.HeldNothing, lua.HeldNothing, lua.HeldLive}, []lua.Held{fenced[0].Held, fenced[1].Held, fenced[2].Held})
		loads := make([]lua.Load, len(cs))
		for i := range cs {
			loads[i] = lua.Load{Campaign: &cs[i], Token: "one"}
		}
		loads[1].Generation = 5
		errs = b.s.LoadAll(t.Context(), loads)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], lua.ErrGeneration)
		require.ErrorIs(t, errs[2], lua.ErrOther)
		require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
		evicted, errs := b.s.Evict(t.Context(), cs, 0)
		require.NoError(t, errors.Join(errs...))
		require.Equal(t, []bool{true, false, true}, evicted, "someone loads the second")
	})
}

func TestTogether_ARedisThatIsNotThereIsNoOutcome(t *testing.T) {
	t.Parallel()
	b := newBundle(t, connect(t, "redis://"+miniredis.RunT(t).Addr()), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, errs := b.s.Fence(ctx, "one", lua.FenceAway, []string{b.c.ID})
	require.ErrorIs(t, errs[0], lua.ErrUnavailable)
	require.NoError(t, b.rdb.Close())
	_, errs = b.s.Fence(t.Context(), "one", lua.FenceAway, []string{b.c.ID, "other"})
	require.ErrorIs(t, errs[0], lua.ErrUnavailable)
	require.ErrorIs(t, errs[1], lua.ErrUnavailable)
}
