package load

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// measurer is a service whose p99 is 1 ms up to its top rate and 50 ms above.
func measurer(top func(call int) float64) Measure {
	calls := 0
	return func(_ context.Context, rate float64) (Counts, error) {
		c, latency := newCounts(), time.Millisecond
		if rate > top(calls) {
			latency = 50 * time.Millisecond
		}
		calls++
		for range 100 {
			c.answer(Answer{}, latency, time.Time{})
		}
		c.Sent, c.Took = int64(rate), time.Second
		return c, nil
	}
}

func TestARampFindsTheTopRateFromBelowAndFromAbove(t *testing.T) {
	t.Parallel()
	for _, from := range []float64{100, 1000, 64_000} {
		r := Ramp{From: from, To: 100_000, P99: 10 * time.Millisecond}
		top, steps, err := r.Find(t.Context(), measurer(func(int) float64 { return 7300 }))
		require.NoError(t, err)
		require.LessOrEqual(t, top, 7300.0)
		require.Greater(t, top*1.1, 7300.0)
		require.Less(t, len(steps), 22)
		last := steps[len(steps)-1]
		require.True(t, last.Held && last.Rate == top, "it held a second time")
	}
}

func TestARampStopsAtItsHighestRateAndAtNone(t *testing.T) {
	t.Parallel()
	r := Ramp{From: 1000, To: 5000, P99: 10 * time.Millisecond}
	top, _, err := r.Find(t.Context(), measurer(func(int) float64 { return 1e9 }))
	require.NoError(t, err)
	require.InDelta(t, 5000, top, 0)

	top, steps, err := r.Find(t.Context(), measurer(func(int) float64 { return 0 }))
	require.NoError(t, err)
	require.Zero(t, top)
	require.Len(t, steps, 14, "1000 and its halves down to a sixty-fourth, each twice")

	broken := errors.New("broken")
	_, _, err = r.Find(t.Context(), func(context.Context, float64) (Counts, error) { return newCounts(), broken })
	require.ErrorIs(t, err, broken)
}

func TestARateHoldsOnlyIfAllOfItWasAnswered(t *testing.T) {
	t.Parallel()
	for reason, spoil := range map[string]func(*Counts){
		"":                 func(c *Counts) { c.Refused["sold_out"] = 900 },
		"1 faults":         func(c *Counts) { c.Faults["unavailable"] = 1 },
		"3 never sent":     func(c *Counts) { c.Unsent = 3 },
		"rate not reached": func(c *Counts) { c.Sent = 970 },
		"p99":              func(c *Counts) { c.record(time.Second) },
		"p99, and the generator itself was late 20 times": func(c *Counts) { c.record(time.Second); c.Late = 20 },
	} {
		c := newCounts()
		c.Sent, c.Took = 1000, time.Second
		spoil(&c)
		step := Ramp{P99: 10 * time.Millisecond}.judge(1000, &c)
		require.Equal(t, reason, step.Reason)
		require.Equal(t, reason == "", step.Held)
	}
}
