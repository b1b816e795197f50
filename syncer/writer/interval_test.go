package writer_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/writer"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
)

// oneOfEach is the claim with a seq of each campaign.
func oneOfEach(campaigns int, seq int64) (events []models.Event) {
	for i := range campaigns {
		events = append(events, syncertest.ClaimsOf(fmt.Sprint("c", i), seq, 1)...)
	}
	return events
}

// A flush of many campaigns makes the next one wait, to half a second at most; a flush of one campaign takes that back. FlushInterval is
// the minimum.
func TestWriter_FlushesLessOftenWhileThereAreManyCampaigns(t *testing.T) {
	t.Parallel()
	const many = 150
	db := syncertest.OpenServer(t)
	for i := range many {
		syncertest.AddCampaign(t, db, fmt.Sprint("c", i), 1000)
	}
	for _, c := range []struct {
		minimum   time.Duration
		campaigns []int // in each flush
		waitsMs   []int
	}{
		{50 * time.Millisecond, []int{20, 150, 1, 10, 1}, []int{50, 100, 500, 50, 50}},
		{700 * time.Millisecond, []int{150, 1}, []int{700, 700}},
	} {
		clock := clockwork.NewFakeClock()
		w := startTuned(t, writer.Config{DB: db, FlushInterval: c.minimum}, writer.Tuning{Clock: clock})
		for n, campaigns := range c.campaigns {
			answers := submitLater(t.Context(), w, oneOfEach(campaigns, 100*c.minimum.Milliseconds()+int64(n)+1))
			require.Eventually(t, func() bool { return w.Pending() == campaigns }, time.Minute, time.Millisecond)
			require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
			clock.Advance(time.Duration(c.waitsMs[n])*time.Millisecond - 1)
			require.Equal(t, campaigns, w.Pending(), "flush %d is not due", n)
			clock.Advance(1)
			written := make(chan error, 1)
			go func() { written <- answers.Wait() }()
			require.NoError(t, advanceUntil(t, clock, written, time.Millisecond))
		}
	}
}

// advanceUntil advances the clock step by step, twenty times at most: a timer may be set just after the time was advanced.
func advanceUntil(t *testing.T, clock *clockwork.FakeClock, done <-chan error, step time.Duration) error {
	t.Helper()
	for range 20 {
		select {
		case err := <-done:
			return err
		case <-time.After(100 * time.Millisecond):
			clock.Advance(step)
		}
	}
	return <-done
}

// A thousand claims a second over a hundred campaigns: a row of stock_flushes for each campaign in each flush, but at most 200 a second.
// A claim waits half a second for its flush at most, which leaves as much for the transaction.
func TestWriter_FlushRowsFollowTheClaims(t *testing.T) {
	t.Parallel()
	const campaigns, perStep, step, warmUp, lasts = 100, 20, 20 * time.Millisecond, time.Second, 6 * time.Second
	db := syncertest.OpenServer(t)
	for i := range campaigns {
		syncertest.AddCampaign(t, db, fmt.Sprint("c", i), 1_000_000)
	}
	clock := clockwork.NewFakeClock()
	started := clock.Now()
	w := startTuned(t, writer.Config{DB: db, FlushInterval: 50 * time.Millisecond}, writer.Tuning{Clock: clock})
	var mu sync.Mutex
	var ages []time.Duration
	var running sync.WaitGroup
	rows := func() (n float64) {
		require.NoError(t, db.Raw("SELECT COUNT(*) FROM stock_flushes").Scan(&n).Error)
		return n
	}
	before := 0.0
	sent := 0
	for clock.Since(started) < lasts {
		came := clock.Now()
		if came.Sub(started) == warmUp {
			before = rows()
		}
		for range perStep {
			e := syncertest.ClaimsOf(fmt.Sprint("c", sent*37%campaigns), int64(sent/campaigns+1), 1)[0]
			sent++
			running.Go(func() {
				if err := syncertest.Submit(t.Context(), w, e, nil); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				ages = append(ages, clock.Since(came))
			})
		}
		settled := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(ages)
		}
		require.Eventually(t, func() bool { return settled()+w.Pending() == sent }, time.Minute, time.Millisecond)
		armed, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // there is no timer when a late flush took them all
		_ = clock.BlockUntilContext(armed, 1)
		cancel()
		clock.Advance(step)
	}
	written := rows() - before
	slices.SortFunc(ages, cmp.Compare[time.Duration])
	t.Logf("%.0f rows in %s; %d claims, age at p99 %s", written, lasts-warmUp, len(ages), ages[len(ages)*99/100])
	require.LessOrEqual(t, written, 200*(lasts-warmUp).Seconds()+campaigns, "and a flush that was due when counting began")
	require.LessOrEqual(t, ages[len(ages)*99/100], 600*time.Millisecond, "and the transaction")
	all := make(chan error)
	go func() { running.Wait(); close(all) }()
	require.NoError(t, advanceUntil(t, clock, all, 50*time.Millisecond))
}
