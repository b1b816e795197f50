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

// Each row adds one reason to refuse to those below it, so the order of rows is the order of precedence.
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

func TestWindowIncludesItsStartAndNotItsEnd(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		starts, ends := noon, noon.Add(time.Minute)
		b := newBundle(t, rdb, func(c *models.Campaign) { c.StartsAt, c.EndsAt = &starts, &ends })
		for _, row := range []struct {
			at      time.Time
			outcome models.Outcome
		}{
			{starts.Add(-time.Millisecond), models.OutcomeNotStarted},
			{starts, models.OutcomeClaimed},
			{ends.Add(-time.Millisecond), models.OutcomeClaimed},
			{ends, models.OutcomeEnded},
		} {
			b.setClock(row.at)
			require.Equal(t, []models.Outcome{row.outcome}, b.outcomes(want("u", 1, "")), row.at)
		}
	})
}

// An end before 1970 was once kept as a number below 0 and read as no end.
func TestEndBefore1970IsAnEnd(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, at := range []time.Time{time.Unix(0, 0), time.Unix(-1e9, 0)} {
			b := newBundle(t, rdb, func(c *models.Campaign) { c.StartsAt, c.EndsAt = &at, &at })
			require.Equal(t, []models.Outcome{models.OutcomeEnded}, b.outcomes(want("u", 1, "")))
		}
	})
}

func TestClaimsOfOneCallSeeEachOther(t *testing.T) {
	const (
		claimed, replayed, mismatch = models.OutcomeClaimed, models.OutcomeReplayed, models.OutcomeIdempotencyMismatch
		soldOut, userLimit, dayMax  = models.OutcomeSoldOut, models.OutcomeUserLimit, models.OutcomeUserDayLimit
	)
	twice := want("u", 1, "")
	rows := map[string]struct {
		total, perUser, perDay int64
		reqs                   []lua.ClaimRequest
		outcomes               []models.Outcome
	}{
		"stock":               {3, 0, 0, []lua.ClaimRequest{want("a", 2, ""), want("b", 2, ""), want("c", 1, ""), want("d", 1, "")}, []models.Outcome{claimed, soldOut, claimed, soldOut}},
		"user":                {9, 3, 0, []lua.ClaimRequest{want("a", 2, ""), want("a", 2, ""), want("a", 1, ""), want("a", 1, ""), want("b", 3, "")}, []models.Outcome{claimed, userLimit, claimed, userLimit, claimed}},
		"day":                 {9, 0, 2, []lua.ClaimRequest{want("a", 2, ""), want("a", 1, ""), want("b", 3, ""), want("b", 1, "")}, []models.Outcome{claimed, dayMax, dayMax, claimed}},
		"user before day":     {9, 1, 1, []lua.ClaimRequest{want("a", 1, ""), want("a", 1, "")}, []models.Outcome{claimed, userLimit}},
		"key":                 {9, 1, 0, []lua.ClaimRequest{want("a", 1, "k"), want("a", 1, "k"), want("a", 1, "k")}, []models.Outcome{claimed, replayed, replayed}},
		"key, other user":     {9, 0, 0, []lua.ClaimRequest{want("a", 1, "k"), want("b", 1, "k"), want("a", 1, "k")}, []models.Outcome{claimed, claimed, replayed}},
		"key, other quantity": {9, 0, 0, []lua.ClaimRequest{want("a", 1, "k"), want("a", 2, "k")}, []models.Outcome{claimed, mismatch}},
		"key after a refusal": {9, 2, 0, []lua.ClaimRequest{want("a", 3, "k"), want("a", 2, "k")}, []models.Outcome{userLimit, claimed}},
		"id":                  {9, 0, 0, []lua.ClaimRequest{twice, twice}, []models.Outcome{claimed, replayed}},
		"last unit, two keys": {1, 0, 0, []lua.ClaimRequest{want("a", 1, "k"), want("b", 1, "l"), want("a", 1, "k")}, []models.Outcome{claimed, soldOut, replayed}},
	}
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for name, row := range rows {
			limits := func(c *models.Campaign) { c.Total, c.PerUser, c.PerUserPerDay = row.total, row.perUser, row.perDay }
			together := newBundle(t, rdb, limits)
			require.Equal(t, row.outcomes, together.outcomes(row.reqs...), name)
			together.requireBooks()

			oneByOne := newBundle(t, rdb, limits)
			for i, req := range row.reqs {
				require.Equal(t, row.outcomes[i:i+1], oneByOne.outcomes(req), "%s, claim %d alone", name, i)
			}
			require.Equal(t, together.state().Taken, oneByOne.state().Taken)
		}
	})
}

func TestReplayIsEqualInEveryField(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.HoldForMs = 90_000 })
		keyed, plain := want("u", 2, "key"), want("v", 1, "")
		first := b.claim(keyed, plain)
		require.Equal(t, noon.Add(90*time.Second), first[0].Claim.ExpiresAt.Time)
		require.Equal(t, models.Claim{
			ID: keyed.ID.String(), CampaignID: b.c.ID, UserID: "u", Quantity: 2, Seq: 1, Status: models.ClaimClaimed,
			ClaimedAt: models.NewTime(noon), ExpiresAt: first[0].Claim.ExpiresAt,
		}, first[0].Claim)

		b.setClock(noon.Add(50 * time.Hour))
		b.claim(wants("w", 10)...)
		b.adjust(func(c *models.Campaign) { c.Total, c.PerUser, c.Status = 0, 1, models.StatusClosed })
		keyed.ID = want("", 1, "").ID // a client's second attempt gets a new id from the API
		again := b.claim(keyed, plain)
		for i := range again {
			require.Equal(t, models.OutcomeReplayed, again[i].Outcome)
			require.Equal(t, first[i].Claim, again[i].Claim)
		}
	})
}

func TestLimitsLoweredBelowWhatIsClaimedAndRaisedAgain(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		b.claim(want("u", 5, ""))
		st := b.adjust(func(c *models.Campaign) { c.Total = 2 })
		require.Equal(t, int64(5), st.Taken, "nothing is taken back")
		require.Zero(t, st.Remaining())
		require.Equal(t, []models.Outcome{models.OutcomeSoldOut}, b.outcomes(want("v", 1, "")))
		b.adjust(func(c *models.Campaign) { c.Total, c.PerUser, c.PerUserPerDay = 6, 2, 2 })
		require.Equal(t, []models.Outcome{models.OutcomeUserLimit, models.OutcomeClaimed, models.OutcomeSoldOut},
			b.outcomes(want("u", 1, ""), want("v", 1, ""), want("v", 1, "")))
		b.adjust(func(c *models.Campaign) { c.Total, c.PerUser, c.PerUserPerDay = 8, 6, 0 })
		require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeUserLimit, models.OutcomeClaimed},
			b.outcomes(want("u", 1, ""), want("u", 1, ""), want("v", 1, "")))
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

func TestRemainingIsWhatIsLeftAfterTheCall(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		_, remaining, err := b.s.Claim(t.Context(), b.meta, []lua.ClaimRequest{want("u", 4, ""), want("v", 7, "")})
		require.NoError(t, err)
		require.Equal(t, int64(6), remaining)
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
