package e2e

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
	"dibs/lua"
	"dibs/models"
)

// hammer has one user ask for single units from many connections at once and returns what became of them.
func hammer(t testing.TB, urls []string, campaignID, user string, requests int) crowd.Tally {
	t.Helper()
	tally := merged()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			got := claimOnce(t, urls[i%len(urls)], campaignID, user, 1, "")
			mu.Lock()
			defer mu.Unlock()
			tally.Sent++
			if got.status != http.StatusCreated {
				tally.Refused[got.code()]++
				return
			}
			book1(t, &tally, got)
		})
	}
	wg.Wait()
	return tally
}

// book1 adds an accepted claim to a tally.
func book1(t testing.TB, tally *crowd.Tally, got reply) {
	t.Helper()
	require.NoError(t, got.err)
	require.Equal(t, http.StatusCreated, got.status, got.body)
	c := got.claim(t)
	tally.Claims[c.ID] = c
	tally.Accepted++
	tally.Units += c.Quantity
}

// zoneAtNoon is a zone where it is about noon now, so that no day ends during a test.
func zoneAtNoon(t testing.TB) string {
	t.Helper()
	zones := []string{
		"Etc/GMT-12", "Etc/GMT-10", "Etc/GMT-8", "Etc/GMT-6", "Etc/GMT-4", "Etc/GMT-2", "Etc/GMT", "Etc/GMT+2", "Etc/GMT+4", "Etc/GMT+6",
		"Etc/GMT+8", "Etc/GMT+10",
	}
	for _, name := range zones {
		zone, err := models.LoadZone(name)
		require.NoError(t, err)
		if hour := time.Now().In(zone).Hour(); hour >= 10 && hour <= 13 {
			return name
		}
	}
	require.FailNow(t, "it is noon nowhere")
	return ""
}

func TestOneUserHammeringGetsTheDayLimitAndNoMore(t *testing.T) {
	t.Parallel()
	s := newSystem(t, wishes{apis: 2})
	c := openCampaign(t, s.apis[0].url, campaign{Total: 1_000, PerUser: 3, PerUserPerDay: 2, TimeZone: zoneAtNoon(t)})
	tally := hammer(t, s.urls(), c.ID, "hammer", 500)
	require.Equal(t, 2, tally.Accepted)
	require.Equal(t, map[string]int{"user_day_limit": 498}, tally.Refused)
	s.checkBooks(c, tally, false)
}

// TestDayEndsAtMidnightOfTheZoneWhateverServersThink: two API servers, whose clocks are 90 s apart, agree about the day, on the
// days of New York that have 23 and 25 hours, too.
func TestDayEndsAtMidnightOfTheZoneWhateverServersThink(t *testing.T) {
	t.Parallel()
	zone, err := models.LoadZone("America/New_York")
	require.NoError(t, err)
	var now atomic.Int64 // Redis' clock, ms
	off := func(server int) time.Duration { return []time.Duration{-45 * time.Second, 45 * time.Second}[server] }
	clock := func(server int) func() time.Time {
		return func() time.Time { return time.UnixMilli(now.Load()).Add(off(server)) }
	}
	midnight := func(m time.Month, d int) time.Time { return time.Date(2026, m, d, 0, 0, 0, 0, zone) }
	now.Store(midnight(time.March, 7).UnixMilli())
	p := newInProcess(t, swaps{apis: 2, clock: clock, options: func(server int) lua.Options {
		return lua.Options{Clock: clock(server), ServerClock: now.Load}
	}})
	p.startConsumer()
	for _, day := range []struct {
		name         string
		start        time.Time
		hours        float64
		tomorrowOnly time.Time
	}{
		{name: "a day of 24 hours", start: midnight(time.March, 7), hours: 24, tomorrowOnly: midnight(time.March, 8)},
		{name: "clocks go forward", start: midnight(time.March, 8), hours: 23, tomorrowOnly: midnight(time.March, 9)},
		{name: "clocks go back", start: midnight(time.November, 1), hours: 25, tomorrowOnly: midnight(time.November, 2)},
	} {
		require.InDelta(t, day.hours, day.tomorrowOnly.Sub(day.start).Hours(), 0, day.name)
		now.Store(day.start.UnixMilli())
		c := openCampaign(t, p.urls[0], campaign{Total: 1_000, PerUser: 3, PerUserPerDay: 2, TimeZone: zone.String()})
		today := hammer(t, p.urls, c.ID, "night owl", 50)
		require.Equal(t, 2, today.Accepted, day.name)

		now.Store(day.tomorrowOnly.UnixMilli() - 1)
		lastMoment := hammer(t, p.urls, c.ID, "night owl", 20)
		require.Equal(t, map[string]int{"user_day_limit": 20}, lastMoment.Refused, day.name)

		now.Store(day.tomorrowOnly.UnixMilli())
		tomorrow := hammer(t, p.urls, c.ID, "night owl", 50)
		require.Equal(t, 1, tomorrow.Accepted, day.name)
		require.Equal(t, map[string]int{string(models.OutcomeUserLimit): 49}, tomorrow.Refused, day.name)

		wrong := p.books(c, merged(today, lastMoment, tomorrow)).violations(t.Context())
		require.Empty(t, wrong, day.name)
	}
}

func (p *inProcess) books(c campaign, tally crowd.Tally) books {
	return books{
		servers: p.servers, campaign: c, tally: tally, readers: map[string]*reader{"finance": p.finance}, url: p.urls[0], within: drainWithin,
	}
}
