package lua_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

// three are campaigns that Redis does not hold yet, one of them damaged there.
func three(t *testing.T, b *bundle) []models.Campaign {
	t.Helper()
	cs := []models.Campaign{*b.c, *b.c, *b.c}
	for i, name := range []string{"a", "b", "d"} {
		cs[i].ID += name
	}
	require.NoError(t, b.rdb.Set(t.Context(), b.s.KeysOf(cs[1].ID).State, "no hash", 0).Err())
	return cs
}

func TestTogether_EachHasItsOwnOutcome(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		cs := three(t, b)
		require.NoError(t, rdb.ScriptFlush(t.Context()).Err(), "a redis that forgot the scripts is told them")
		loaded, errs := b.s.LoadAll(t.Context(), append(cs, *b.c))
		require.Equal(t, []bool{true, false, true, false}, loaded, "the last one is there already")
		require.NoError(t, errors.Join(errs[0], errs[2], errs[3]))
		require.ErrorIs(t, errs[1], lua.ErrDamaged)

		for i := range cs {
			cs[i].Version, cs[i].Total = 2, 20
		}
		other := *b.c
		other.ID += "absent"
		errs = b.s.AdjustAll(t.Context(), append(cs, other))
		require.NoError(t, errors.Join(errs[0], errs[2]))
		require.ErrorIs(t, errs[1], lua.ErrDamaged)
		require.ErrorIs(t, errs[3], lua.ErrAbsent)
		state, err := b.s.State(t.Context(), cs[2].ID)
		require.NoError(t, err)
		require.Equal(t, []int64{2, 20}, []int64{state.Version, state.Total})

		old := cs[2]
		old.SyncedSeq = 7
		require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
		gone, errs := b.s.EvictAll(t.Context(), []models.Campaign{cs[0], cs[1], old, other}, 0)
		require.Equal(t, []bool{true, false, false, false}, gone)
		require.NoError(t, errors.Join(errs[0], errs[2]), "it has another number of claims, so it stays")
		require.ErrorIs(t, errs[1], lua.ErrDamaged)
		require.ErrorIs(t, errs[3], lua.ErrAbsent)
		gone, errs = b.s.EvictAll(t.Context(), cs[2:], time.Hour)
		require.NoError(t, errs[0])
		require.False(t, gone[0], "it was loaded just now")
	})
}

func TestTogether_ARedisThatIsNotThereIsNoOutcome(t *testing.T) {
	t.Parallel()
	b := newBundle(t, connect(t, "redis://"+miniredis.RunT(t).Addr()), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, errs := b.s.LoadAll(ctx, []models.Campaign{*b.c})
	require.ErrorIs(t, errs[0], lua.ErrUnavailable)
	require.NoError(t, b.rdb.Close())
	errs = b.s.AdjustAll(t.Context(), []models.Campaign{*b.c, *b.c})
	require.ErrorIs(t, errs[0], lua.ErrUnavailable)
	require.ErrorIs(t, errs[1], lua.ErrUnavailable)
}

// The campaigns of a group are on every node of a cluster, none of which knows the scripts.
func TestTogether_OnACluster(t *testing.T) {
	t.Parallel()
	const partitions = 8
	addrs := testenv.RedisCluster(t, 3)
	s, err := lua.New(connect(t, "redis://"+strings.Join(addrs, ",")), lua.Options{Partitions: partitions})
	require.NoError(t, err)
	cs, ids := make([]models.Campaign, 16), make([]string, 16)
	nodes := map[int]bool{}
	for i := range cs {
		cs[i] = models.Campaign{
			ID: testenv.UniqueID(t, "c"), Kind: models.KindCoupon, Status: models.StatusLoading, Total: 10, TimeZone: "UTC", Epoch: 1,
		}
		ids[i] = cs[i].ID
		nodes[lua.PartitionOf(ids[i], partitions)] = true
	}
	require.Greater(t, len(nodes), 1)
	loaded, errs := s.LoadAll(t.Context(), cs)
	require.NoError(t, errors.Join(errs...))
	require.NotContains(t, loaded, false)
	for i := range cs {
		cs[i].Status, cs[i].Version = models.StatusOpen, 1
	}
	require.NoError(t, errors.Join(s.AdjustAll(t.Context(), cs)...))
	views, err := s.Lots(t.Context(), slices.Concat(ids, []string{"none"}), nil)
	require.NoError(t, err)
	for i := range ids {
		require.NoError(t, views[i].Err)
		require.Equal(t, models.StatusOpen, views[i].State.Status)
		require.Equal(t, ids[i], views[i].State.Meta.ID)
	}
	require.ErrorIs(t, views[len(ids)].Err, lua.ErrAbsent)
	gone, errs := s.EvictAll(t.Context(), cs, 0)
	require.NoError(t, errors.Join(errs...))
	require.NotContains(t, gone, false)
}
