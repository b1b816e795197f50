package lab_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/proof/lab"
)

func resultOf(name string, rounds ...lab.Round) lab.Result {
	entry, _ := lab.StrategyNamed(name)
	return lab.ResultOf(entry, rounds)
}

func TestFiguresOfAStrategyAreMediansAndWorstRounds(t *testing.T) {
	t.Parallel()
	even := []lab.Round{{ClaimsPerSecond: 4}, {ClaimsPerSecond: 1}, {ClaimsPerSecond: 3}, {ClaimsPerSecond: 2}}
	res := resultOf("watch", even...)
	require.InDelta(t, 2.5, res.ClaimsPerSecond, 1e-9)
	require.Equal(t, even, res.Rounds, "in their order")
	require.Zero(t, resultOf("watch").ClaimsPerSecond)
	worst := resultOf("watch",
		lab.Round{SettledMs: 5, Statements: 1, RedisMicros: 10, Oversold: 3, Undersold: 1, SellOutRate: 7, Busy: 1}.WithLock("1, for ever"),
		lab.Round{SettledMs: 9, Statements: 5, RedisMicros: 30, Oversold: 1, Undersold: 4, SellOutRate: 9, OverLimitUsers: 2, Busy: 2},
		lab.Round{SettledMs: 7, Statements: 2, RedisMicros: 20, SellOutRate: 8, OverLimitUsers: 1, Failure: "boom", Failed: 1},
	)
	require.Equal(t, []int64{3, 4, 2}, []int64{worst.Oversold, worst.Undersold, worst.OverLimitUsers})
	require.Equal(t, []float64{9, 2, 20, 8}, []float64{worst.SettledMs, worst.Statements, worst.RedisMicros, worst.SellOutRate})
	require.Equal(t, []int64{3, 1}, []int64{worst.Busy, worst.Failed})
	require.Equal(t, []string{"watch", "boom", "1, for ever"}, []string{worst.Name, worst.Failure, worst.Lock})
}

func TestARatioIsOfRoundsThatBothHave(t *testing.T) {
	t.Parallel()
	rates := func(name string, rates ...float64) lab.Result {
		var rounds []lab.Round
		for _, rate := range rates {
			rounds = append(rounds, lab.Round{ClaimsPerSecond: rate})
		}
		return resultOf(name, rounds...)
	}
	r := lab.Report{Results: []lab.Result{rates("for-update", 10, 0), rates("lua-update"), rates("dibs-http", 100, 400, 900)}}
	r.Compare()
	require.InDelta(t, 10, r.Results[0].DibsRatio, 1e-9, "a round without a claim is none to compare with")
	require.Zero(t, r.Results[1].DibsRatio)
	require.InDelta(t, 1, r.Results[2].DibsRatio, 1e-9)
	require.Contains(t, r.Markdown(), "FOR UPDATE: 10.0, target ≥ 10.0: met", "just enough is enough")
	require.Equal(t, 1, strings.Count(r.Markdown(), "target"), "of those that ran")
}
