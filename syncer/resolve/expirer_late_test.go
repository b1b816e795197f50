package resolve_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/models"
	"dibs/syncer/resolve"

	"github.com/stretchr/testify/require"
)

// TestExpirer_HoldsEndInTime: a thousand holds a second end, spread over many campaigns, with the jobs of a syncer as often as it runs
// them. docs/capacity.md has the figures of the long form:
//
//	DIBS_SOAK=1 go test ./syncer/resolve -run HoldsEndInTime -v
func TestExpirer_HoldsEndInTime(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	held, claims := testenv.Pick(500, 10_000), testenv.Pick(2_000, 40_000)
	const holdFor, prepare = time.Hour, 3 * time.Millisecond
	begin := time.Now().Add(5*time.Second + time.Duration(claims)*prepare/10)
	rows := make([]models.Campaign, held)
	for i := range rows {
		rows[i] = syncertest.CampaignOf(fmt.Sprintf("c%05d", i), int64(claims))
		rows[i].HoldForMs, rows[i].Version = holdFor.Milliseconds(), 1
	}
	syncertest.AddCampaigns(t, h.DB, rows...)
	for done := 0; done < claims; done += 1000 {
		var events []models.Event
		for i := done; i < done+1000; i++ {
			one := syncertest.ClaimsOf(rows[i%held].ID, int64(1+i/held), 1)[0]
			one.At = models.NewTime(begin.Add(time.Duration(i)*time.Millisecond - holdFor))
			events = append(events, one)
		}
		require.NoError(t, syncertest.SubmitAll(t.Context(), h.Writer, events))
	}
	t.Logf("%s to spare", time.Until(begin).Round(time.Millisecond))
	relay := resolve.NewRelay(h.DB, h.Scripts, nil)
	expirer := resolve.NewExpirer(relay, nil, nil)
	ctx, stop := context.WithCancel(t.Context())
	var jobs sync.WaitGroup
	run := func(every time.Duration, job func(context.Context) (int, error)) {
		jobs.Go(func() {
			for {
				_, _ = job(ctx) // what failed is left, and found below
				if sleep.For(ctx, every) != nil {
					return
				}
			}
		})
	}
	run(time.Second, expirer.Expire)
	run(250*time.Millisecond, relay.Relay)
	left := func() (n int64) {
		require.NoError(t, h.DB.Raw("SELECT COUNT(*) FROM claims WHERE status = 'claimed'").Scan(&n).Error)
		return n
	}
	require.Eventually(t, func() bool { return left() == 0 }, time.Until(begin)+time.Duration(claims)*time.Millisecond+30*time.Second, 200*time.Millisecond)
	stop()
	jobs.Wait()
	var lateMs []int64
	require.NoError(t, h.DB.Raw("SELECT TIMESTAMPDIFF(MICROSECOND, claimed_at, resolved_at) DIV 1000 - ? AS late FROM claims ORDER BY late",
		holdFor.Milliseconds()).Scan(&lateMs).Error)
	at := func(share float64) int64 { return lateMs[int(share*float64(len(lateMs)-1))] }
	t.Logf("%d holds of %d campaigns, 1,000 a second: late by %d ms (median), %d ms (99 %%), %d ms at most", claims, held, at(.5), at(.99), at(1))
	require.GreaterOrEqual(t, at(0), int64(0), "none before its time")
	require.Less(t, at(.99), time.Minute.Milliseconds(), "2 s are promised, see docs/capacity.md; a busy machine gets more")
}
