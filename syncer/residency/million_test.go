package residency_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"dibs/internal/sleep"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/models"
	"dibs/syncer/reconcile"
	"dibs/syncer/resolve"

	"github.com/stretchr/testify/require"
)

// repeat runs a job of the syncer again and again. What fails because Redis lacks the campaign is tried again.
func repeat(ctx context.Context, job func(context.Context) (int, error)) {
	for sleep.For(ctx, 100*time.Millisecond) == nil {
		_, _ = job(ctx)
	}
}

// A sale of many claims with holds, a thousand of which end a second: Redis loses all, and the sale takes claims again in no more than
// twice the time that a load takes when nothing else happens.
func TestRebuild_OfASaleWhoseHoldsEnd(t *testing.T) {
	t.Parallel()
	h := syncertest.NewStack(t)
	claims := testenv.Pick(50_000, 1_000_000)
	id := h.Create(int64(3*claims), func(c *models.Campaign) { c.HoldForMs = time.Hour.Milliseconds() })
	first := time.Now().Truncate(time.Millisecond)
	for done := 0; done < claims; done += 10_000 {
		events := syncertest.ClaimsOf(id, int64(done)+1, 10_000)
		for i := range events {
			events[i].At = models.NewTime(first.Add(time.Duration(done+i) * time.Millisecond))
		}
		require.NoError(t, syncertest.SubmitAll(t.Context(), h.Writer, events))
	}
	flush := func() (back func() time.Duration) {
		require.NoError(t, h.Redis.FlushAll(t.Context()).Err()) //nolint:forbidigo // its own Redis, and the fault itself
		started := time.Now()
		return func() time.Duration {
			require.Empty(t, h.Repair(id, reconcile.RepairHow{GiveUpClaims: true}).Left.Differences)
			require.Equal(t, models.OutcomeClaimed, h.Claim(id, syncertest.Ask("anybody", ""))[0].Outcome)
			return time.Since(started)
		}
	}
	quiet := flush()()
	h.Sync()
	due := time.Since(first).Milliseconds() + 1000
	h.Exec("UPDATE definitions SET hold_for_ms = ? WHERE campaign_id = ?", due, id)
	h.Exec("UPDATE stock_flushes SET due_ms = first_claimed_ms + ? WHERE campaign_id = ?", due, id)
	relay := resolve.NewRelay(h.DB, h.Scripts, nil)
	expirer := resolve.NewExpirer(relay, nil, nil)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var jobs sync.WaitGroup
	jobs.Go(func() { repeat(ctx, expirer.Expire) })
	jobs.Go(func() { repeat(ctx, relay.Relay) })
	require.Eventually(t, func() bool { return h.Campaign(id).ReleasedClaims > 1000 }, time.Minute, 10*time.Millisecond)
	expired, started := h.Campaign(id).ReleasedClaims, time.Now()
	busy := flush()()
	rate := float64(h.Campaign(id).ReleasedClaims-expired) / time.Since(started).Seconds()
	t.Logf("%d claims: loaded in %s, while %.0f holds a second ended in %s", claims, quiet, rate, busy)
	require.LessOrEqual(t, busy, 2*quiet+time.Second)
	stop()
	jobs.Wait()
	h.Sync()
	syncertest.ApplyOutbox(t, h.DB, relay)
	require.Empty(t, h.Compare(id).Differences)
}
