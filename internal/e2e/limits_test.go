package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/crowd"
)

// hammer claims single units for one user over many connections,
// and returns the outcomes.
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

// noon is a zone where it is now about noon, so that no day ends
// during a test.
func noon() string {
	if ahead := 12 - time.Now().UTC().Hour(); ahead > 0 {
		return fmt.Sprintf("Etc/GMT-%d", ahead)
	}
	return fmt.Sprintf("Etc/GMT+%d", time.Now().UTC().Hour()-12)
}

func TestOneUserHammeringGetsTheDayLimitAndNoMore(t *testing.T) {
	t.Parallel()
	s := newSystem(t, setup{apis: 2})
	c := openCampaign(t, s.apis[0].url, campaign{Total: 1_000, PerUser: 3, PerUserPerDay: 2, TimeZone: noon()})
	tally := hammer(t, s.urls(), c.ID, "hammer", 500)
	require.Equal(t, 2, tally.Accepted)
	require.Equal(t, map[string]int{"user_day_limit": 498}, tally.Refused)
	s.checkBooks(c, tally, false)
}
