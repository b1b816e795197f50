package load

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// stalling replies in a millisecond, except for a stall from 1 s
// to 2 s after its start.
func stalling() Send {
	start := time.Now()
	return func(context.Context, int64) Answer {
		if into := time.Since(start); into >= time.Second && into < 2*time.Second {
			<-time.After(2*time.Second - into)
		}
		<-time.After(time.Millisecond)
		return Answer{}
	}
}

func TestAStallIsInTheLatencyOfAllThatWereDueMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		res, err := Run(t.Context(), Plan{Rate: 100, Duration: 10 * time.Second, Connections: 4}, stalling())
		require.NoError(t, err)
		c := res.Measured
		require.EqualValues(t, 1000, c.Accepted)
		require.InDelta(t, time.Second, c.Max(), float64(5*time.Millisecond))
		require.Greater(t, c.At(96), 500*time.Millisecond, "100 of 1000 were due during the stall, half of them half a second and more before its end")
		require.Less(t, c.At(89), 5*time.Millisecond)
		require.InDelta(t, 96, c.Waited, 5, "four found a connection")
		require.Zero(t, c.Late)
	})
}

// The control: a closed loop, which sends after an answer and
// measures from there, does not show the same stall.
func TestAClosedLoopHidesTheSameStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		send, mu, c := stalling(), sync.Mutex{}, newCounts()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 250 {
					sent := time.Now()
					answer := send(t.Context(), 0)
					mu.Lock()
					c.answer(answer, time.Since(sent), time.Now())
					mu.Unlock()
					<-time.After(40*time.Millisecond - time.Since(sent)%(40*time.Millisecond))
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1000, c.Accepted)
		require.Less(t, c.At(99), 5*time.Millisecond, "four of a thousand waited")
	})
}

func TestTheWarmUpIsCountedApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		res, err := Run(t.Context(), Plan{Rate: 100, WarmUp: time.Second, Duration: time.Second, Connections: 50}, func(_ context.Context, n int64) Answer {
			if n < 100 {
				<-time.After(200 * time.Millisecond)
			}
			return Answer{}
		})
		require.NoError(t, err)
		require.EqualValues(t, 100, res.Warm.Accepted)
		require.EqualValues(t, 100, res.Measured.Accepted)
		require.Less(t, res.Measured.Max(), 5*time.Millisecond)
		require.InDelta(t, 100, res.Measured.Rate(), 0.1)
	})
}

func TestPlansThatCannotBeRunAreRefused(t *testing.T) {
	t.Parallel()
	good := Plan{Rate: 1, Duration: time.Second, Connections: 1}
	require.NoError(t, good.Validate())
	for field, spoil := range map[string]func(*Plan){
		"rate": func(p *Plan) { p.Rate = math.NaN() }, "rate of": func(p *Plan) { p.Rate = 0.5 },
		"duration": func(p *Plan) { p.Duration = 0 }, "warm-up": func(p *Plan) { p.WarmUp = -1 },
		"connections": func(p *Plan) { p.Connections = 0 },
	} {
		p := good
		spoil(&p)
		_, err := Run(t.Context(), p, nil)
		require.ErrorIs(t, err, ErrPlan, field)
		require.ErrorContains(t, err, field)
	}
}
