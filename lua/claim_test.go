package lua_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

func TestBigNumbersAreExact(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.Total, c.PerUser = models.UnitsMax, models.UnitsMax })
		require.NoError(t, rdb.HSet(t.Context(), b.keys.State, "taken", models.UnitsMax-models.QuantityMax-1).Err())
		require.NoError(t, rdb.HSet(t.Context(), b.keys.State, "seq", models.UnitsMax-2).Err())
		require.NoError(t, rdb.HSet(t.Context(), b.keys.Users, "u", "0:999998999999;1:5").Err())
		require.NoError(t, rdb.HSet(t.Context(), b.keys.Keys, "another", "record").Err())

		replies, remaining, err := b.s.Claim(t.Context(), b.meta, []lua.ClaimRequest{
			want("u", models.QuantityMax, ""), want("v", 2, ""), want("u", 2, ""), want("u", 1, ""),
		})
		require.NoError(t, err)
		require.Zero(t, remaining)
		require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeSoldOut, models.OutcomeSoldOut, models.OutcomeClaimed}, outcomesOf(replies))
		require.Equal(t, models.UnitsMax-1, replies[0].Claim.Seq)
		require.Equal(t, models.UnitsMax, replies[3].Claim.Seq)
		st := b.state()
		require.Equal(t, models.UnitsMax, st.Taken)
		require.Equal(t, models.UnitsMax, st.Seq)
		record, err := rdb.HGet(t.Context(), b.keys.Users, "u").Result()
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(record, "0:1000000000000;"), record)
		require.Equal(t, models.UnitsMax, b.events()[1].Seq)
	})
}

// Redis refuses calls if a clock is wrong by days. Others are not sent.
func TestCallsThatCantBeChangeNothing(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.PerUserPerDay = 1 })
		before := snapshot(t.Context(), t, rdb)
		for name, reqs := range map[string][]lua.ClaimRequest{
			"none": nil, "too many": wants("u", lua.ClaimsMax+1), "units back": {want("u", 1, ""), want("u", -1, "")},
			"too many units": {want("u", models.QuantityMax+1, "")},
		} {
			_, _, err := b.s.Claim(t.Context(), b.meta, reqs)
			require.ErrorIs(t, err, lua.ErrUnavailable, name)
		}
		for _, off := range []time.Duration{-73 * time.Hour, 73 * time.Hour, 1e6 * time.Hour} {
			b.ourMs.Store(noon.Add(off).UnixMilli())
			_, _, err := b.s.Claim(t.Context(), b.meta, wants("u", 2))
			require.ErrorIs(t, err, lua.ErrUnavailable, off)
			require.ErrorContains(t, err, "clock")
		}
		require.Equal(t, before, snapshot(t.Context(), t, rdb))
	})
}

// Another user who sends the same idempotency key, by chance or by
// guess, makes a claim of its own.
func TestAKeyIsItsUsers(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeClaimed, models.OutcomeReplayed},
			b.outcomes(want("u", 1, "order-9001"), want("v", 2, "order-9001"), want("u", 1, "order-9001")))
		require.EqualValues(t, 3, b.state().Taken)
	})
}
