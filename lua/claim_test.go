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

// Each row adds one reason to refuse to those below it. So the order of
// rows is the order of precedence.
func TestRefusalsHaveOneOrder(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.Total, c.PerUser, c.PerUserPerDay = 3, 1, 1 })
		taken := want("u", 1, "key")
		first := b.claim(taken)[0]
		require.Equal(t, models.OutcomeClaimed, first.Outcome)
		past, future := noon.Add(-time.Hour), noon.Add(time.Hour)

		rows := []struct {
			add     func(c *models.Campaign)
			outcome models.Outcome
		}{
			{func(c *models.Campaign) { c.PerUser = 0 }, models.OutcomeUserDayLimit},
			{func(c *models.Campaign) { c.PerUser = 1 }, models.OutcomeUserLimit},
			{func(c *models.Campaign) { c.Total = 1 }, models.OutcomeSoldOut},
			{func(c *models.Campaign) { c.Total = 0 }, models.OutcomeSoldOut},
			{func(c *models.Campaign) { c.EndsAt = &past }, models.OutcomeEnded},
			{func(c *models.Campaign) { c.StartsAt = &future }, models.OutcomeNotStarted},
			{func(c *models.Campaign) { c.Status = models.StatusPaused }, models.OutcomePaused},
			{func(c *models.Campaign) { c.Status = models.StatusClosed }, models.OutcomeClosed},
		}
		for _, row := range rows {
			b.adjust(row.add)
			before := snapshot(t.Context(), t, rdb)
			require.Equal(t, []models.Outcome{row.outcome}, b.outcomes(want("u", 1, "")), row.outcome)
			again := b.claim(taken)[0]
			require.Equal(t, models.OutcomeReplayed, again.Outcome, "before %s", row.outcome)
			require.Equal(t, first.Claim, again.Claim)
			other := taken
			other.Quantity = 2
			require.Equal(t, []models.Outcome{models.OutcomeIdempotencyMismatch}, b.outcomes(other))
			require.Equal(t, before, snapshot(t.Context(), t, rdb), "a refusal writes nothing")
		}
		b.requireBooks()
	})
}

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

func TestCallsThatCantBeAreNotSent(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.Total = 1000 })
		before := snapshot(t.Context(), t, rdb)
		for name, reqs := range map[string][]lua.ClaimRequest{
			"none": nil, "too many": wants("u", lua.ClaimsMax+1), "no unit": {want("u", 0, "")},
			"units back": {want("u", 1, ""), want("u", -1, "")}, "too many units": {want("u", models.QuantityMax+1, "")},
		} {
			_, _, err := b.s.Claim(t.Context(), b.meta, reqs)
			require.ErrorIs(t, err, lua.ErrUnavailable, name)
		}
		require.Equal(t, before, snapshot(t.Context(), t, rdb))
		require.Len(t, b.claim(wants("u", lua.ClaimsMax)...), lua.ClaimsMax)
	})
}

func TestClocksThatDifferByDaysAreRefused(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.PerUserPerDay = 1 })
		before := snapshot(t.Context(), t, rdb)
		for _, off := range []time.Duration{-73 * time.Hour, 73 * time.Hour, -1000 * time.Hour, 1e6 * time.Hour} {
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
