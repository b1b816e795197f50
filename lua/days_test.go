package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// midnights are days whose edges are not plain, as "date that begins, in zone, at UTC moment".
var midnights = []struct{ name, zone, starts string }{
	{"plain", "UTC", "2026-03-06T00:00:00Z"},
	{"New York, the night before summer time", "America/New_York", "2026-03-08T05:00:00Z"},
	{"New York, after a day of 23 hours", "America/New_York", "2026-03-09T04:00:00Z"},
	{"New York, the night before winter time", "America/New_York", "2026-11-01T04:00:00Z"},
	{"New York, after a day of 25 hours", "America/New_York", "2026-11-02T05:00:00Z"},
	{"Sao Paulo, midnight skipped", "America/Sao_Paulo", "2018-11-04T03:00:00Z"},
	{"Sao Paulo, an hour before midnight twice", "America/Sao_Paulo", "2018-02-18T03:00:00Z"},
	{"Beirut, midnight skipped", "Asia/Beirut", "2026-03-28T22:00:00Z"},
	{"Beirut, an hour before midnight twice", "Asia/Beirut", "2026-10-24T22:00:00Z"},
	{"Havana, midnight skipped", "America/Havana", "2026-03-08T05:00:00Z"},
	{"Havana, midnight twice", "America/Havana", "2026-11-01T04:00:00Z"},
	{"Apia, a whole day skipped", "Pacific/Apia", "2011-12-30T10:00:00Z"},
	{"Kathmandu, a quarter of an hour off", "Asia/Kathmandu", "2026-03-05T18:15:00Z"},
	{"Lord Howe, half an hour of summer time", "Australia/Lord_Howe", "2026-04-04T13:00:00Z"},
}

func parse(t testing.TB, at string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, at)
	require.NoError(t, err)
	return parsed
}

func TestDayLimitTurnsAtMidnightOfTheZone(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, row := range midnights {
			starts := parse(t, row.starts)
			b := newBundle(t, rdb, func(c *models.Campaign) { c.PerUser, c.PerUserPerDay, c.TimeZone = 3, 2, row.zone })
			b.setClock(starts.Add(-time.Millisecond))
			require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeClaimed, models.OutcomeUserDayLimit},
				b.outcomes(want("u", 1, ""), want("u", 1, ""), want("u", 1, "")), row.name)
			b.setClock(starts)
			require.Equal(t, []models.Outcome{models.OutcomeClaimed, models.OutcomeUserLimit},
				b.outcomes(want("u", 1, ""), want("u", 1, "")), "%s: midnight is a new day", row.name)
		}
	})
}

// A day gives its quota once, at whatever moments of it the claims come.
func TestEachDayGivesItsQuotaOnce(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, row := range midnights {
			zone, err := models.LoadZone(row.zone)
			require.NoError(t, err)
			b := newBundle(t, rdb, func(c *models.Campaign) { c.Total, c.PerUserPerDay, c.TimeZone = 1000, 1, row.zone })
			dates := map[string]int{}
			first := parse(t, row.starts).Add(-50 * time.Hour)
			for at := first; at.Before(first.Add(100 * time.Hour)); at = at.Add(30 * time.Minute) {
				b.setClock(at)
				if b.outcomes(want("u", 1, ""))[0] == models.OutcomeClaimed {
					dates[at.In(zone).Format(time.DateOnly)]++
				}
			}
			for date, claims := range dates {
				require.Equal(t, 1, claims, "%s: %s", row.name, date)
			}
			require.GreaterOrEqual(t, len(dates), 4, row.name)
		}
	})
}

// Two processes whose clocks differ agree on the day, for it is Redis' clock that picks it.
func TestProcessesWithWrongClocksAgree(t *testing.T) {
	offsets := []time.Duration{0, 90 * time.Second, -90 * time.Second, 23 * time.Hour, -23 * time.Hour}
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, row := range midnights {
			for _, offset := range offsets {
				name := fmt.Sprintf("%s, off by %s", row.name, offset)
				starts := parse(t, row.starts)
				b := newBundle(t, rdb, func(c *models.Campaign) { c.PerUserPerDay, c.TimeZone = 1, row.zone })
				wrong := *b
				wrong.s = b.scripts()
				for _, step := range []struct {
					b       *bundle
					now     time.Time
					outcome models.Outcome
				}{
					{b, starts.Add(-time.Second), models.OutcomeClaimed},
					{&wrong, starts.Add(-time.Millisecond), models.OutcomeUserDayLimit},
					{&wrong, starts, models.OutcomeClaimed},
					{b, starts.Add(time.Second), models.OutcomeUserDayLimit},
				} {
					b.setClock(step.now)
					if step.b == &wrong {
						b.ourMs.Store(step.now.Add(offset).UnixMilli())
					}
					replies, _, err := step.b.s.Claim(t.Context(), b.meta, []lua.ClaimRequest{want("u", 1, "")})
					require.NoError(t, err, name)
					require.Equal(t, step.outcome, replies[0].Outcome, name)
				}
			}
		}
	})
}

// Off by more than the table of days covers is refused.
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

func TestClockSteppingBackOverMidnightGivesNoQuota(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, row := range midnights {
			b := newBundle(t, rdb, func(c *models.Campaign) { c.PerUserPerDay, c.TimeZone = 1, row.zone })
			starts := parse(t, row.starts)
			for _, step := range []struct {
				now     time.Time
				outcome models.Outcome
			}{
				{starts.Add(-time.Minute), models.OutcomeClaimed},
				{starts.Add(time.Minute), models.OutcomeClaimed},
				{starts.Add(-time.Minute), models.OutcomeUserDayLimit},
				{starts.Add(time.Minute), models.OutcomeUserDayLimit},
			} {
				b.setClock(step.now)
				require.Equal(t, []models.Outcome{step.outcome}, b.outcomes(want("u", 1, "")), row.name)
			}
		}
	})
}
