package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type told struct {
	mu     sync.Mutex
	asked  map[string]int
	answer func(user string, nth int) (Outcome, error)
}

func (*told) Prepare(context.Context) error { return nil }
func (*told) Close() error                  { return nil }
func (s *told) Claim(_ context.Context, user string) (Outcome, error) {
	s.mu.Lock()
	if s.asked == nil {
		s.asked = map[string]int{}
	}
	s.asked[user]++
	nth := s.asked[user]
	s.mu.Unlock()
	return s.answer(user, nth)
}

// crowdOf is an order for a number of claimers.
func crowdOf(claimers int, o order) order {
	o.Connections = claimers
	return o
}

var errSold = errors.New("the connection broke")

func TestAMeasurementLastsAsLongAsItShallAndEveryUserIsNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &told{answer: func(string, int) (Outcome, error) {
			<-time.After(10 * time.Millisecond)
			return Claimed, nil
		}}
		c := newCrowd(crowdOf(5, order{Share: 3, Of: 4, WarmUp: 20 * time.Millisecond, For: 75 * time.Millisecond, Prefix: "m"}), s)
		d, err := c.run(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 50, d.Outcomes["claimed"])
		require.EqualValues(t, 35, d.InTime, "those of the warm-up and those that were answered after the end were no part of the rate")
		require.Equal(t, 100*time.Millisecond, d.Took)
		require.Len(t, s.asked, 50)
		for user, asks := range s.asked {
			require.Equal(t, 1, asks)
			require.True(t, strings.HasPrefix(user, "m3-"), "not those of another worker: %s", user)
		}
		require.Empty(t, d.Had, "no one asked who had what")
		var one Round
		require.NoError(t, one.add([]done{d, d}, 75*time.Millisecond))
		require.EqualValues(t, 80, one.latency.TotalCount(), "without the warm-up")
		require.InDelta(t, 10_000, float64(one.latency.ValueAtQuantile(50)), 10, "µs")
		require.EqualValues(t, 100, one.Claims)
		require.InDelta(t, 70/0.075, one.ClaimsPerSecond, 1e-6)
	})
}

func TestEveryAnswerIsCountedAsWhatItIs(t *testing.T) {
	t.Parallel()
	answers := []struct {
		outcome Outcome
		err     error
	}{
		{Claimed, nil},
		{SoldOut, nil},
		{OverLimit, nil},
		{Busy, nil},
		{Busy, nil},
		{"", errSold},
		{Claimed, errSold}, // outcome unknown
		{Claimed, fmt.Errorf("wrapped: %w", ErrLeaseLost)}, // sold, loss noticed late
		{"", ErrLeaseLost}, // not sold
		// one of both was about the lease
		{Claimed, errors.Join(errSold, fmt.Errorf("x: %w", ErrLeaseLost))},
	}
	next := -1
	s := &told{answer: func(string, int) (Outcome, error) {
		next++
		return answers[next].outcome, answers[next].err
	}}
	c := newCrowd(crowdOf(1, order{Of: 1, Users: len(answers), Asks: 1, AtMost: time.Minute}), s)
	d, err := c.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[Outcome]int64{"claimed": 3, "sold_out": 1, "over_limit": 1, "busy": 2}, d.Outcomes)
	require.EqualValues(t, 3, d.Failed)
	require.Equal(t, errSold.Error(), d.Failure, "the first of them")
	require.Equal(t, map[string]int64{"0": 1, "7": 1, "9": 1}, d.Had)
}

// The stock must be compared with all workers' answers.
func TestASellOutIsCountedOverAllWorkers(t *testing.T) {
	t.Parallel()
	counted := func(units int64, answers ...done) (r Round) {
		r.count(answers, units)
		return r
	}
	had := func(pairs ...map[string]int64) (all []done) {
		for i, one := range pairs {
			all = append(all, done{Had: one, Took: time.Duration(i+1) * time.Second})
		}
		return all
	}
	exact := counted(4, had(map[string]int64{"a": 1, "b": 1}, map[string]int64{"c": 1, "d": 1})...)
	require.Equal(t, Round{Sold: 4, SellOutRate: 2}, exact, "the slowest worker's time")
	over := counted(4, had(map[string]int64{"a": 1, "b": 2}, map[string]int64{"a": 1, "c": 1})...)
	require.Equal(t, []int64{5, 1, 0, 2}, []int64{over.Sold, over.Oversold, over.Undersold, over.OverLimitUsers}, "a had too many in two processes")
	under := counted(4, had(map[string]int64{"a": 1})...)
	require.Equal(t, []int64{1, 0, 3}, []int64{under.Sold, under.Oversold, under.Undersold})
	cut := counted(4, done{Cut: true, Had: map[string]int64{"a": 1}}, done{Failed: 2, Failure: "second"}, done{Failed: 1, Failure: "third"})
	require.Equal(t, Round{Sold: 1, Cut: true, Failed: 3, Failure: "second"}, cut, "what is left of one that was cut says nothing")
	busy := counted(4, done{Outcomes: map[Outcome]int64{Busy: 3}}, done{Outcomes: map[Outcome]int64{Busy: 4}})
	require.EqualValues(t, 7, busy.Busy)
}
