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

// told is a Strategy that answers as a test says.
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

func yes(string, int) (Outcome, error) { return Claimed, nil }

var errSold = errors.New("the connection broke")

// Over all workers every user asks as often as it shall, and no one else does.
func TestTheWorkersOfASellOutShareItsAsks(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2, 3, 7} {
		all := &told{answer: yes}
		var sold int64
		had := map[string]int64{}
		for i := range workers {
			c := newCrowd(opening{Claimers: 4, Share: i, Of: workers}, all, load{Users: 11, Asks: 3, AtMost: time.Minute, Prefix: "s", Present: true})
			d, err := c.run(t.Context())
			require.NoError(t, err)
			sold += d.Outcomes["claimed"]
			for user, units := range d.Had {
				had[user] += units
			}
			require.False(t, d.Cut)
		}
		require.Len(t, all.asked, 11)
		for i := range 11 {
			require.Equal(t, 3, all.asked[fmt.Sprint("s", i)], "%d workers", workers)
			require.EqualValues(t, 3, had[fmt.Sprint("s", i)])
		}
		require.EqualValues(t, 33, sold)
	}
}

// Asks of one user are neighbours, so that with two workers they meet in two processes.
func TestAsksOfOneUserGoToDifferentWorkers(t *testing.T) {
	t.Parallel()
	users := func(share int) (all []string) {
		c := newCrowd(opening{Share: share, Of: 2}, nil, load{Users: 4, Asks: 2, AtMost: time.Minute, Prefix: "s"})
		c.start = time.Now()
		for {
			user, more := c.nextUser()
			if !more {
				return all
			}
			all = append(all, user)
		}
	}
	require.Equal(t, []string{"s0", "s1", "s2", "s3"}, users(0))
	require.Equal(t, users(0), users(1))
}

func TestAMeasurementLastsAsLongAsItShallAndEveryUserIsNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &told{answer: func(string, int) (Outcome, error) {
			<-time.After(10 * time.Millisecond)
			return Claimed, nil
		}}
		c := newCrowd(opening{Claimers: 5, Share: 3, Of: 4}, s, load{For: 95 * time.Millisecond, Prefix: "m"})
		d, err := c.run(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 50, d.Outcomes["claimed"])
		require.EqualValues(t, 45, d.InTime, "those that were answered after the end were no part of the rate")
		require.Equal(t, 100*time.Millisecond, d.Took)
		require.Len(t, s.asked, 50)
		for user, asks := range s.asked {
			require.Equal(t, 1, asks)
			require.True(t, strings.HasPrefix(user, "m3-"), "not those of another worker: %s", user)
		}
		require.Nil(t, d.Had, "no one asked who had what")
		all := newHistogram()
		require.NoError(t, d.mergeInto(all))
		require.EqualValues(t, 50, all.TotalCount())
		require.InDelta(t, 10_000, float64(all.ValueAtQuantile(50)), 10, "µs")
	})
}

func TestASellOutThatTakesTooLongIsCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &told{answer: func(string, int) (Outcome, error) {
			<-time.After(time.Second)
			return SoldOut, nil
		}}
		c := newCrowd(opening{Claimers: 1, Of: 1}, s, load{Users: 100, Asks: 1, AtMost: 3500 * time.Millisecond, Prefix: "s"})
		d, err := c.run(t.Context())
		require.NoError(t, err)
		require.True(t, d.Cut)
		require.EqualValues(t, 4, d.Outcomes["sold_out"], "none begins after its end")
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
		{0, errSold},
		{Claimed, errSold}, // no one knows
		{Claimed, fmt.Errorf("wrapped: %w", ErrLeaseLost)}, // sold, and told so late
		{0, ErrLeaseLost}, // not sold
		{Claimed, errors.Join(errSold, fmt.Errorf("x: %w", ErrLeaseLost))}, // one of both was about the lease
	}
	next := -1
	s := &told{answer: func(string, int) (Outcome, error) {
		next++
		return answers[next].outcome, answers[next].err
	}}
	c := newCrowd(opening{Claimers: 1, Of: 1}, s, load{Users: len(answers), Asks: 1, AtMost: time.Minute, Present: true})
	d, err := c.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"claimed": 3, "sold_out": 1, "over_limit": 1, "busy": 2}, d.Outcomes)
	require.EqualValues(t, 3, d.Failed)
	require.Equal(t, errSold.Error(), d.Failure, "the first of them")
	require.Equal(t, map[string]int64{"0": 1, "7": 1, "9": 1}, d.Had)
}

func TestACrowdThatIsSentHomeGoes(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := &told{answer: func(string, int) (Outcome, error) {
		cancel()
		return Claimed, nil
	}}
	d, err := newCrowd(opening{Claimers: 3, Of: 1}, s, load{For: time.Hour}).run(ctx)
	require.NoError(t, err)
	require.LessOrEqual(t, d.Outcomes["claimed"], int64(3))
}

func TestLatenciesOfAWorkerThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	all := newHistogram()
	require.NoError(t, (&done{}).mergeInto(all), "none at all are none")
	require.Error(t, (&done{Latency: []byte("no histogram")}).mergeInto(all))
	one := newHistogram()
	require.NoError(t, one.RecordValue(latencyMax))
	text, err := one.EncodeV2()
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, (&done{Latency: text}).mergeInto(all))
	}
	require.EqualValues(t, 2, all.TotalCount())
	require.InEpsilon(t, latencyMax, all.Max(), 0.01)
}

// What there was is held against what users were told, over all workers.
func TestASellOutIsCountedOverAllWorkers(t *testing.T) {
	t.Parallel()
	had := func(pairs ...map[string]int64) (all []done) {
		for i, one := range pairs {
			all = append(all, done{Had: one, Took: time.Duration(i+1) * time.Second})
		}
		return all
	}
	campaign := Campaign{Units: 5, PerUser: 2}
	exact := count(had(map[string]int64{"a": 2, "b": 1}, map[string]int64{"c": 2}), campaign)
	require.Equal(t, SellOut{Sold: 5, ClaimsPerSecond: 2.5}, exact, "the slowest worker's time")
	over := count(had(map[string]int64{"a": 2, "b": 2}, map[string]int64{"a": 1, "c": 2}), campaign)
	require.Equal(t, []int64{7, 2, 0, 1}, []int64{over.Sold, over.Oversold, over.Undersold, over.OverLimitUsers}, "a had too many in two processes")
	under := count(had(map[string]int64{"a": 1}), campaign)
	require.Equal(t, []int64{1, 0, 4}, []int64{under.Sold, under.Oversold, under.Undersold})
	cut := count([]done{{Cut: true, Had: map[string]int64{"a": 1}}, {Failed: 2, Failure: "second"}, {Failed: 1, Failure: "third"}}, campaign)
	require.Equal(t, SellOut{Sold: 1, Cut: true, Failed: 3, Failure: "second"}, cut, "what is left of one that was cut says nothing")
	busy := count([]done{{Outcomes: map[string]int64{"busy": 3}}, {Outcomes: map[string]int64{"busy": 4}}}, campaign)
	require.EqualValues(t, 7, busy.Busy)
	require.Zero(t, count(had(map[string]int64{"a": 9}), Campaign{Units: 9}).OverLimitUsers, "a limit of 0 is none")
}
